/* Walks the batch headers of a segment: see README.md in this folder for the map it reads.
 *
 * Keep the declarations between the two marks plain C without preprocessor lines: build_ffi.py gives exactly that
 * part to cffi, so the two sides of the call cannot drift apart.
 */
#ifndef TIDELOG_BATCH_WALK_H
#define TIDELOG_BATCH_WALK_H

#include <stdint.h>

/* cffi begins */
typedef struct {
    uint64_t position;
    uint32_t length;
    uint32_t record_count;
    uint64_t checksum;
    int64_t base_offset;
    int64_t append_time_us;
    int64_t synced_upto;
    int64_t min_timestamp_us;
    int64_t max_timestamp_us;
    uint64_t producer_id;
    uint32_t producer_epoch;
    uint32_t base_sequence;
    uint32_t leader_epoch;
    uint32_t attributes;
    uint8_t priority;
    uint8_t padding[7];
} tidelog_batch_entry;

typedef struct {
    uint64_t count;
    uint64_t position;
    uint32_t reason;
} tidelog_walk_result;

/* Reads headers of data[position..end) into entries until something stops it; the reasons are StopReason's.
 * The caller guarantees position <= end <= the bytes behind data, and room for limit entries. */
void tidelog_walk_batches(const uint8_t *data, uint64_t position, uint64_t end, uint32_t seed,
                          tidelog_batch_entry *entries, uint64_t limit, tidelog_walk_result *result);

uint32_t tidelog_xxh32(const uint8_t *data, uint64_t length, uint32_t seed);
/* cffi ends */

#endif

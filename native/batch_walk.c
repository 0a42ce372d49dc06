#include "batch_walk.h"

#include <string.h>

/* Same numbers as StopReason in batch_walk.py. */
enum {
    STOP_END = 0,
    STOP_ZERO = 1,
    STOP_BAD_MAGIC = 2,
    STOP_BAD_LENGTH = 3,
    STOP_BAD_LEADER_CHECKSUM = 4,
    STOP_BAD_LOCAL_CHECKSUM = 5,
    STOP_LIMIT = 6
};

/* The batch header of protocol/README.md. */
enum {
    HEADER_BYTES = 112,
    AT_LENGTH = 4,
    AT_CHECKSUM = 8,
    AT_BASE_OFFSET = 16,
    AT_APPEND_TIME = 24,
    AT_LEADER_EPOCH = 32,
    AT_LEADER_CHECKSUM = 36,
    AT_SYNCED_UPTO = 40,
    AT_LOCAL_CHECKSUM = 52,
    AT_RECORD_COUNT = 56,
    AT_ATTRIBUTES = 60,
    AT_PRIORITY = 64,
    AT_PRODUCER_EPOCH = 68,
    AT_PRODUCER_ID = 72,
    AT_BASE_SEQUENCE = 80,
    AT_MIN_TIMESTAMP = 88,
    AT_MAX_TIMESTAMP = 96
};

/* Bytes are assembled by hand: no alignment and no byte order is assumed, and compilers make one load of it. */
static uint32_t load_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t load_u64(const uint8_t *p) {
    return (uint64_t)load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

static int64_t load_i64(const uint8_t *p) {
    uint64_t bits = load_u64(p);
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* xxHash32 by Yann Collet, from its specification (doc/xxhash_spec.md of the xxHash project). */
static const uint32_t PRIME_1 = 0x9E3779B1u;
static const uint32_t PRIME_2 = 0x85EBCA77u;
static const uint32_t PRIME_3 = 0xC2B2AE3Du;
static const uint32_t PRIME_4 = 0x27D4EB2Fu;
static const uint32_t PRIME_5 = 0x165667B1u;

static uint32_t rotate_left(uint32_t x, int bits) {
    return x << bits | x >> (32 - bits);
}

static uint32_t xxh32_round(uint32_t lane, const uint8_t *p) {
    return rotate_left(lane + load_u32(p) * PRIME_2, 13) * PRIME_1;
}

uint32_t tidelog_xxh32(const uint8_t *data, uint64_t length, uint32_t seed) {
    uint64_t at = 0;
    uint32_t hash;
    if (length >= 16) {
        uint32_t a = seed + PRIME_1 + PRIME_2, b = seed + PRIME_2, c = seed, d = seed - PRIME_1;
        for (; length - at >= 16; at += 16) {
            a = xxh32_round(a, data + at);
            b = xxh32_round(b, data + at + 4);
            c = xxh32_round(c, data + at + 8);
            d = xxh32_round(d, data + at + 12);
        }
        hash = rotate_left(a, 1) + rotate_left(b, 7) + rotate_left(c, 12) + rotate_left(d, 18);
    } else {
        hash = seed + PRIME_5;
    }
    hash += (uint32_t)length;
    for (; length - at >= 4; at += 4) {
        hash = rotate_left(hash + load_u32(data + at) * PRIME_3, 17) * PRIME_4;
    }
    for (; at < length; at++) {
        hash = rotate_left(hash + data[at] * PRIME_5, 11) * PRIME_1;
    }
    hash = (hash ^ hash >> 15) * PRIME_2;
    hash = (hash ^ hash >> 13) * PRIME_3;
    return hash ^ hash >> 16;
}

static int all_zero(const uint8_t *p, uint64_t length) {
    for (uint64_t at = 0; at < length; at++) {
        if (p[at] != 0) {
            return 0;
        }
    }
    return 1;
}

/* Says why the header at p cannot be taken, STOP_END when it can; left is what lies between it and the end. */
static uint32_t check_header(const uint8_t *p, uint64_t left, uint32_t local_seed) {
    static const uint8_t magic[4] = {'T', 'L', 'B', '1'};
    if (left < sizeof magic || memcmp(p, magic, sizeof magic) != 0) {
        return all_zero(p, left < HEADER_BYTES ? left : HEADER_BYTES) ? STOP_ZERO : STOP_BAD_MAGIC;
    }
    if (left < HEADER_BYTES) {
        return STOP_BAD_LENGTH;
    }
    uint32_t length = load_u32(p + AT_LENGTH);
    if (length < HEADER_BYTES || length % 8 != 0 || length > left) {
        return STOP_BAD_LENGTH;
    }
    if (tidelog_xxh32(p, AT_LEADER_CHECKSUM, 0) != load_u32(p + AT_LEADER_CHECKSUM)) {
        return STOP_BAD_LEADER_CHECKSUM;
    }
    if (tidelog_xxh32(p + AT_LEADER_CHECKSUM, AT_LOCAL_CHECKSUM - AT_LEADER_CHECKSUM, local_seed) !=
        load_u32(p + AT_LOCAL_CHECKSUM)) {
        return STOP_BAD_LOCAL_CHECKSUM;
    }
    return STOP_END;
}

static void read_entry(const uint8_t *p, uint64_t position, tidelog_batch_entry *entry) {
    memset(entry, 0, sizeof *entry);
    entry->position = position;
    entry->length = load_u32(p + AT_LENGTH);
    entry->record_count = load_u32(p + AT_RECORD_COUNT);
    entry->checksum = load_u64(p + AT_CHECKSUM);
    entry->base_offset = load_i64(p + AT_BASE_OFFSET);
    entry->append_time_us = load_i64(p + AT_APPEND_TIME);
    entry->synced_upto = load_i64(p + AT_SYNCED_UPTO);
    entry->min_timestamp_us = load_i64(p + AT_MIN_TIMESTAMP);
    entry->max_timestamp_us = load_i64(p + AT_MAX_TIMESTAMP);
    entry->producer_id = load_u64(p + AT_PRODUCER_ID);
    entry->producer_epoch = load_u32(p + AT_PRODUCER_EPOCH);
    entry->base_sequence = load_u32(p + AT_BASE_SEQUENCE);
    entry->leader_epoch = load_u32(p + AT_LEADER_EPOCH);
    entry->attributes = load_u32(p + AT_ATTRIBUTES);
    entry->priority = p[AT_PRIORITY];
}

void tidelog_walk_batches(const uint8_t *data, uint64_t position, uint64_t end, uint32_t seed,
                          tidelog_batch_entry *entries, uint64_t limit, tidelog_walk_result *result) {
    uint64_t count = 0;
    uint32_t reason = STOP_END;
    while (position < end) {
        if (count == limit) {
            reason = STOP_LIMIT;
            break;
        }
        reason = check_header(data + position, end - position, seed ^ (uint32_t)(position / 8));
        if (reason != STOP_END) {
            break;
        }
        read_entry(data + position, position, &entries[count]);
        position += entries[count].length;
        count++;
    }
    result->count = count;
    result->position = position;
    result->reason = reason;
}

/* Reads a segment image from stdin and walks it from every position that is a multiple of 8, and over every prefix
 * of its first kilobyte, in buffers of exactly that size: so that a read beyond the end is one that ASan sees. */
#include "batch_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t walk_copy(const uint8_t *image, uint64_t position, uint64_t end, uint64_t limit) {
    uint8_t *data = malloc(end ? end : 1);
    tidelog_batch_entry *entries = malloc((limit ? limit : 1) * sizeof *entries);
    tidelog_walk_result result;
    memcpy(data, image, end);
    tidelog_walk_batches(data, position, end, 7, entries, limit, &result);
    free(entries);
    free(data);
    return result.count;
}

int main(void) {
    static uint8_t image[1 << 16];
    uint64_t size = fread(image, 1, sizeof image, stdin), batches = 0, walks = 0;
    for (uint64_t position = 0; position <= size; position += 8) {
        batches += walk_copy(image, position, size, 4);
        walks++;
    }
    for (uint64_t end = 0; end <= size && end <= 1024; end++) {
        batches += walk_copy(image, 0, end, 2);
        walks++;
    }
    printf("%llu walks, %llu batches\n", (unsigned long long)walks, (unsigned long long)batches);
    return 0;
}

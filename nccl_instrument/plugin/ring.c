/* Completion records: an overwrite ring that any thread may append to without waiting.
 *
 * A writer takes the next number, then claims that row by making its stamp odd. A row somebody is still writing, or
 * that already holds a later record (this writer slept for a whole lap), costs the record and is counted.
 */
#include <string.h>

#include "plugin.h"

static int ring_claim(OpRow *record, uint64_t stamp) {
    uint64_t seen = ACQUIRE(record->stamp);
    if ((seen & 1) || seen >= stamp) return 0;
    return __atomic_compare_exchange_n(&record->stamp, &seen, stamp - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Word by word, so that a reader of the old record sees it change rather than undefined behaviour. */
static void record_copy(OpRow *to, const OpRow *from) {
    uint64_t *words = (uint64_t *)to;
    const uint64_t *source = (const uint64_t *)from;
    for (size_t word = 1; word < sizeof(OpRow) / sizeof(uint64_t); word++) STORE(words[word], LOAD(source[word]));
}

void ring_append(const OpRow *op) {
    uint64_t index = ADD(plugin.header->ring_head, 1), stamp = 2 * (index + 1);
    OpRow *record = &plugin.ring[index & (plugin.n_ring - 1)];
    if (!ring_claim(record, stamp)) {
        COUNT(ring_busy);
        return;
    }
    record_copy(record, op);
    PUBLISH(record->stamp, stamp);
}

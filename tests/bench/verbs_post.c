/* Times a post and its completion as NCCL's proxy makes them, with or without the shim in front: prints nanoseconds for the
 * two, the median and 99th percentile of batches of 100. */
#include "wire.h"

#define BATCH 100
#define BATCHES 2000

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(void) {
    static double batches[BATCHES];
    struct dgv_qp_abi *qps[64];
    wire_open();
    for (int i = 0; i < 64; i++) qps[i] = wire_connect(1 + i);
    for (int batch = 0; batch < BATCHES; batch++) {
        long long began = wire_now_ns();
        for (int i = 0; i < BATCH; i++) {
            wire_post(qps[i % 64], 1, 512u << 10);
            MUST(wire_poll() == 1);
        }
        batches[batch] = (double)(wire_now_ns() - began) / BATCH;
    }
    qsort(batches, BATCHES, sizeof *batches, by_size);
    printf("%.1f %.1f\n", batches[BATCHES / 2], batches[BATCHES * 99 / 100]);
    return 0;
}

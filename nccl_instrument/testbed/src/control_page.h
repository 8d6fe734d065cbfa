/* The memory the orchestrator and the ranks share: faults go in, progress comes out. Plain shared words instead of a
 * message channel, because a frozen or hung rank must still be readable and a fault must reach a thread that is
 * waiting for something else. nccl_instrument/testbed/pages.py is the other side; `dgrank --offsets` prints this
 * layout and a test compares the two.
 *
 *   offset              what                    bytes
 *   0                   job                     4096
 *   4096 * (1 + rank)   one per rank            4096
 *   4096 * (1 + ranks)  one per NIC             128
 */
#ifndef DG_CONTROL_PAGE_H
#define DG_CONTROL_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define PAGE_BYTES 4096
#define NIC_PAGE_BYTES 128
#define N_RECENT_ITERATIONS 512

enum rank_state {
    STATE_STARTING = 0,
    STATE_RUNNING = 1,
    STATE_IN_DATA_LOADER = 2,
    STATE_PAUSED = 3,
    STATE_CHECKPOINT = 4,
    STATE_FINISHED = 5,
    STATE_FAILED = 6,
};

struct job_page {
    _Atomic uint64_t stop_at;    /* first iteration that is not run any more */
    _Atomic uint64_t pause_at;   /* iteration before which every rank pauses */
    _Atomic uint64_t pause_ns;
    _Atomic uint64_t profiler;   /* which of two plugins is called, from each rank's next iteration on */
    _Atomic uint64_t n_passes;   /* bandwidth sweeps the ranks may have begun */
};

struct rank_page {
    /* Written by the orchestrator. */
    _Atomic uint64_t copy_factor_milli;    /* 1000 = healthy, 2000 = copies take twice as long */
    _Atomic uint64_t compute_factor_milli;
    _Atomic uint64_t is_stuck_before;      /* the main thread stays in its data loader */
    _Atomic uint64_t proxy_sleep_until_ns;
    _Atomic uint64_t checkpoint_ns;        /* taken once, before the next op */
    _Atomic uint64_t corrupt_next;         /* one wrong number, to prove that the check sees it */
    uint64_t reserved[26];
    /* Written by the rank, from byte 256. */
    _Atomic uint64_t state;
    _Atomic uint64_t iteration;
    _Atomic uint64_t n_ops_enqueued;
    _Atomic uint64_t n_ops_done;
    _Atomic uint64_t listen_port;
    _Atomic uint64_t n_elements_checked;
    uint64_t reserved_out[90];
    _Atomic uint32_t iteration_us[N_RECENT_ITERATIONS]; /* from byte 1024, ring by iteration number */
};

struct nic_page {
    _Atomic uint64_t is_up;
    _Atomic uint64_t bytes_per_s; /* paced links only, as are the two clocks */
    _Atomic uint64_t tx_busy_until_ns;
    _Atomic uint64_t rx_busy_until_ns;
    _Atomic uint64_t tx_bytes;
    _Atomic uint64_t rx_bytes;
};

_Static_assert(sizeof(struct rank_page) <= PAGE_BYTES, "a rank's page is one page");
_Static_assert(sizeof(struct nic_page) <= NIC_PAGE_BYTES, "a NIC's part is 128 bytes");

#endif

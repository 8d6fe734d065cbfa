/* The rows lie in a file that is mapped whole, so that a killed rank leaves what it had (sent_log.h). */
#define _GNU_SOURCE
#include "sent_log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "progress.h"

struct sent_log {
    struct sent_header header;
    struct sent_row rows[SENT_ROWS_MAX];
};

void sent_log_open(struct rank *self)
{
    char path[512];
    const char *folder = getenv("DIOGENES_TESTBED_SENT");
    if (folder == NULL || folder[0] == '\0')
        return;
    snprintf(path, sizeof path, "%s/rank%d.sent", folder, self->rank);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *log = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)sizeof(struct sent_log)) == 0)
        log = mmap(NULL, sizeof(struct sent_log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (log == MAP_FAILED)
        perror("dgrank: cannot keep a log of what is sent");
    else
        self->sent = log;
    if (fd >= 0)
        close(fd);
}

void sent_log_append(struct rank *self, const struct proxy_op *op, uint32_t step, uint64_t ended_after_ns)
{
    struct sent_log *log = self->sent;
    if (log == NULL)
        return;
    uint64_t at = atomic_load(&log->header.n_rows);
    if (at == SENT_ROWS_MAX) {
        atomic_fetch_add(&log->header.n_refused, 1);
        return;
    }
    const struct sent_slice *slice = &op->sent[step % N_SLOTS];
    log->rows[at] = (struct sent_row){
        .comm_hash = op->flow->comm->spec.hash, .number = op->call.number,
        .ordinal = op->call.ordinal, .began_after_ns = slice->after_ns,
        .began_before_ns = slice->before_ns, .ended_after_ns = ended_after_ns, .ended_before_ns = now_ns(),
        .bytes = slice->bytes, .comm_rank = op->flow->comm->me, .peer = op->flow->peer,
        .channel = op->flow->channel, .is_p2p = op->call.is_p2p,
    };
    atomic_store(&log->header.n_rows, at + 1);
}

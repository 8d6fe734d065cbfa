/* The GPU begins a kernel when its stream comes to it, and the op is announced to the plugin after its launch: whichever
 * thread comes second tells the plugin. Both let go of the report in the end. */
#include "reported.h"

#include <pthread.h>
#include <stdlib.h>

#include "job.h"

struct report {
    pthread_mutex_t lock;
    struct profiled_comm *comm;
    void *op_handle, *handles[MAX_CHANNELS];
    int n_channels, n_owners;
    int is_announced, is_begun, is_ended, has_told_begin, has_told_end;
};

struct report *report_new(struct profiled_comm *comm, int n_channels)
{
    if (!profiler_wants_kernels())
        return NULL;
    struct report *report = calloc(1, sizeof *report);
    pthread_mutex_init(&report->lock, NULL);
    report->comm = comm;
    report->n_channels = n_channels;
    report->n_owners = 2;
    return report;
}

static void tell(struct report *report)
{
    if (report->op_handle == NULL || !report->is_announced)
        return;
    if (report->is_begun && !report->has_told_begin) {
        report->has_told_begin = 1;
        for (int channel = 0; channel < report->n_channels; channel++)
            report->handles[channel] = profiler_start_kernel(report->comm, report->op_handle, channel);
    }
    if (report->is_ended && !report->has_told_end) {
        report->has_told_end = 1;
        for (int channel = 0; channel < report->n_channels; channel++)
            profiler_stop_kernel(report->handles[channel]);
    }
}

static void tell_and_unlock(struct report *report, int lets_go)
{
    tell(report);
    report->n_owners -= lets_go;
    int is_free = report->n_owners == 0;
    pthread_mutex_unlock(&report->lock);
    if (is_free) {
        pthread_mutex_destroy(&report->lock);
        free(report);
    }
}

void report_announced(struct report *report, void *op_handle)
{
    if (report == NULL)
        return;
    pthread_mutex_lock(&report->lock);
    report->is_announced = 1;
    report->op_handle = op_handle;
    tell_and_unlock(report, 1);
}

void report_begun(struct report *report)
{
    if (report == NULL)
        return;
    pthread_mutex_lock(&report->lock);
    report->is_begun = 1;
    tell_and_unlock(report, 0);
}

void report_ended(struct report *report)
{
    if (report == NULL)
        return;
    pthread_mutex_lock(&report->lock);
    report->is_ended = 1;
    tell_and_unlock(report, 1);
}

/* Kernels as NCCL reports them to a profiler that asks: begun and ended, by channel. */
#ifndef DG_REPORTED_H
#define DG_REPORTED_H

#include "profiler.h"

struct report;

/* NULL, which the functions below take as well, where the plugin does not ask for kernels. */
struct report *report_new(struct profiled_comm *comm, int n_channels);
void report_announced(struct report *report, void *op_handle);
void report_begun(struct report *report);
void report_ended(struct report *report);

#endif

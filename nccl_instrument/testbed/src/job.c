/* Reads job.conf: one "key value…" per line, written by the orchestrator (job.h says why). */
#define _GNU_SOURCE
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct number_key {
    const char *key;
    size_t offset;
    int is_int;
};

#define INT_KEY(field) {#field, offsetof(struct job, field), 1}
#define U64_KEY(field) {#field, offsetof(struct job, field), 0}

#include <stddef.h>

static const struct number_key NUMBER_KEYS[] = {
    INT_KEY(n_ranks), INT_KEY(n_nics), INT_KEY(n_channels), INT_KEY(is_paced), INT_KEY(is_ib),
    INT_KEY(n_microbatches), INT_KEY(n_buckets), U64_KEY(seed), U64_KEY(forward_ns), U64_KEY(backward_ns),
    U64_KEY(optimizer_ns), U64_KEY(jitter_ppm), U64_KEY(tp_bytes), U64_KEY(pp_bytes), U64_KEY(dp_bytes),
    U64_KEY(world_bytes), U64_KEY(copy_bytes_per_s), U64_KEY(node_copy_bytes_per_s),
    U64_KEY(sweep_bytes_max), U64_KEY(sweep_series_bytes), U64_KEY(sweep_series_ops),
};

static int read_number(struct job *job, const char *key, const char *rest)
{
    for (size_t i = 0; i < sizeof NUMBER_KEYS / sizeof *NUMBER_KEYS; i++) {
        if (strcmp(NUMBER_KEYS[i].key, key) != 0)
            continue;
        char *field = (char *)job + NUMBER_KEYS[i].offset;
        uint64_t value = strtoull(rest, NULL, 10);
        if (NUMBER_KEYS[i].is_int)
            *(int *)field = (int)value;
        else
            memcpy(field, &value, sizeof value);
        return 0;
    }
    return -1;
}

static int read_rank(struct job *job, const char *rest)
{
    int rank, node, nic;
    char address[64], device[32];
    if (sscanf(rest, "%d %d %d %63s %31s", &rank, &node, &nic, address, device) != 5 || rank < 0 || rank >= MAX_RANKS)
        return -1;
    job->ranks[rank].node = node;
    job->ranks[rank].nic = nic;
    strcpy(job->ranks[rank].address, address);
    strcpy(job->ranks[rank].device, device);
    return 0;
}

static int read_members(struct comm_spec *comm, const char *rest)
{
    int used = 0;
    for (int i = 0; i < comm->n_ranks; i++, rest += used)
        if (sscanf(rest, " %d%n", &comm->members[i], &used) != 1)
            return -1;
    return 0;
}

static int read_comm(struct job *job, const char *rest)
{
    if (job->n_comms == MAX_COMMS)
        return -1;
    struct comm_spec *comm = &job->comms[job->n_comms];
    int kind, used;
    if (sscanf(rest, "%d %47s %lx %d%n", &kind, comm->name, &comm->hash, &comm->n_ranks, &used) != 4)
        return -1;
    if (comm->n_ranks < 2 || comm->n_ranks > MAX_RANKS || read_members(comm, rest + used) != 0)
        return -1;
    comm->kind = (enum comm_kind)kind;
    job->n_comms++;
    return 0;
}

static int read_line(struct job *job, char *line)
{
    char *rest = strchr(line, ' ');
    if (rest == NULL)
        return -1;
    *rest++ = '\0';
    rest[strcspn(rest, "\n")] = '\0';
    if (strcmp(line, "job") == 0) {
        snprintf(job->name, sizeof job->name, "%s", rest);
        return 0;
    }
    if (strcmp(line, "rank") == 0)
        return read_rank(job, rest);
    if (strcmp(line, "comm") == 0)
        return read_comm(job, rest);
    return read_number(job, line, rest);
}

int job_read(struct job *job, const char *path)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    memset(job, 0, sizeof *job);
    if (file == NULL) {
        fprintf(stderr, "dgrank: cannot open %s\n", path);
        return -1;
    }
    int rc = 0;
    while (rc == 0 && fgets(line, sizeof line, file) != NULL)
        rc = read_line(job, line);
    fclose(file);
    if (rc != 0)
        fprintf(stderr, "dgrank: %s: cannot read the line that starts with \"%.40s\"\n", path, line);
    return rc;
}

int comm_rank_of(const struct comm_spec *comm, int rank)
{
    for (int i = 0; i < comm->n_ranks; i++)
        if (comm->members[i] == rank)
            return i;
    return -1;
}

int comm_n_nodes(const struct job *job, const struct comm_spec *comm)
{
    int n = 0;
    for (int i = 0; i < comm->n_ranks; i++) {
        int is_new = 1;
        for (int j = 0; j < i; j++)
            is_new &= job->ranks[comm->members[i]].node != job->ranks[comm->members[j]].node;
        n += is_new;
    }
    return n;
}

/* From one NIC to another: a slice occupies the sending NIC, the link up, the link down and the receiving NIC, each a
 * queue served in order at its own rate; they work at the same time, so the slowest one counts. A NIC limited in its own
 * rate (or its PCIe) holds back whatever it sends, credits included; competing traffic takes from the links alone. */
#include "sim.h"

static int64_t cost_ns(const struct nic *nic, uint32_t bytes, double share)
{
    return (int64_t)((double)bytes * NS_PER_S / ((double)nic->bytes_per_s * share));
}

static double nic_share(const struct nic *nic)
{
    return nic->share < nic->pcie_share ? nic->share : nic->pcie_share;
}

/* What a rank's memory makes of its NIC: misaligned buffers take more reads or writes for the same bytes. */
static int64_t dma_ns(const struct sim *sim, const struct nic *nic, int32_t rank, uint32_t bytes, double part)
{
    return cost_ns(nic, bytes, nic_share(nic) * part / sim->ranks[rank].dma_factor);
}

static int64_t reserve(int64_t *busy_until, int64_t from, int64_t cost)
{
    *busy_until = largest(*busy_until, from) + cost;
    return *busy_until;
}

static struct nic *nic_of(struct sim *sim, int32_t rank)
{
    return &sim->nics[sim->ranks[rank].spec.nic];
}

/* A NIC with a bad path to memory: each slice goes at another rate. */
static double wobble(const struct sim *sim, const struct nic *nic, const struct link *link)
{
    if (nic->wobble <= 0)
        return 1;
    uint64_t place = (uint64_t)(link - sim->links) << 32 | link->n_started;
    return 1 - nic->wobble * random_unit(sim, 4, (uint64_t)(nic - sim->nics), place);
}

/* The port has data and may send none: whoever comes behind it gives no credits. While it sends other data it does not wait. */
static void wait_at(struct nic *from, int64_t since, int64_t until)
{
    since = largest(since, largest(from->waited_until_ns, from->tx_ns));
    if (until <= since)
        return;
    from->waited_ns += until - since;
    from->waited_since_ns = since;
    from->waited_until_ns = until;
}

/* Data that may leave after all while the port was to wait. */
static void send_instead(struct nic *from, int64_t start, int64_t until)
{
    int64_t since = largest(start, from->waited_since_ns);
    int64_t end = until < from->waited_until_ns ? until : from->waited_until_ns;
    if (end > since)
        from->waited_ns -= end - since;
}

/* An interval is noted when it begins; what of it lies ahead is told by later readings. */
uint64_t waited_now(const struct sim *sim, struct nic *nic)
{
    int64_t most = nic->told_ns + sim->now - nic->told_at_ns;
    nic->told_ns = largest(nic->told_ns, nic->waited_ns < most ? nic->waited_ns : most);
    nic->told_at_ns = sim->now;
    return (uint64_t)nic->told_ns;
}

void path_send(struct sim *sim, int32_t at, uint32_t bytes)
{
    struct link *link = &sim->links[at];
    struct nic *from = nic_of(sim, link->spec.from_rank);
    int64_t start = largest(from->tx_ns, sim->now);
    from->tx_ns = start + dma_ns(sim, from, link->spec.from_rank, bytes, wobble(sim, from, link));
    send_instead(from, start, from->tx_ns);
    slot_of(link, link->n_sent)->bytes_sent = bytes;
    slot_of(link, link->n_sent)->sent_ns = sim->now;
    slot_of(link, link->n_sent++)->start_ns = start;
    if (start > sim->now && !link->has_start_call) {
        link->has_start_call = 1;
        call_at(sim, start, C_START, at);
    } else if (start <= sim->now) {
        path_start(sim, at);
    }
}

static void lose(struct link *link, uint32_t from)
{
    link->is_lost = 1;
    for (uint32_t step = from; step != link->n_started; step++)
        slot_of(link, step)->arrive_ns = slot_of(link, step)->ack_ns = NEVER;
}

static int is_dead(const struct sim *sim, const struct link *link)
{
    const struct rank *from = &sim->ranks[link->spec.from_rank], *to = &sim->ranks[link->spec.to_rank];
    return sim->nics[from->spec.nic].is_down || sim->nics[to->spec.nic].is_down || to->is_killed || from->is_killed;
}

static int64_t leave_ns(struct sim *sim, struct link *link, struct nic *from, struct nic *to, uint32_t step)
{
    uint32_t bytes = slot_of(link, step)->bytes_sent;
    int64_t start = slot_of(link, step)->start_ns;
    int64_t leave = start + dma_ns(sim, from, link->spec.from_rank, bytes, wobble(sim, from, link));
    leave = largest(leave, reserve(&from->up_ns, start, cost_ns(from, bytes, from->wire_share)));
    int64_t ready = leave;
    leave = largest(leave, reserve(&to->down_ns, start, cost_ns(to, bytes, to->wire_share)));
    int64_t taken = dma_ns(sim, to, link->spec.to_rank, bytes, wobble(sim, to, link));
    leave = largest(leave, reserve(&to->rx_ns, start, taken));
    wait_at(from, ready, leave);
    return leave;
}

static void want_ack(struct sim *sim, int32_t at, struct link *link, int64_t ns)
{
    const struct end *end = &link->send;
    int is_last = end->first != NONE && end->base + sim->proxy_ops[end->first].n_steps == link->n_started;
    if (!is_last && (!link->waits_room || link->has_ack_call))
        return;
    link->has_ack_call = 1;
    call_at(sim, ns, C_ACK, at);
}

/* Slices whose turn has come at the sending NIC. */
void path_start(struct sim *sim, int32_t at)
{
    struct link *link = &sim->links[at];
    struct nic *from = nic_of(sim, link->spec.from_rank), *to = nic_of(sim, link->spec.to_rank);
    while (link->n_started != link->n_sent && slot_of(link, link->n_started)->start_ns <= sim->now) {
        uint32_t step = link->n_started++, bytes = slot_of(link, step)->bytes_sent;
        if (is_dead(sim, link)) {
            if (!from->is_down)
                slice_keep(sim, link, step, sim->now + cost_ns(from, bytes, nic_share(from)));
            lose(link, step);
            continue;
        }
        int64_t leave = leave_ns(sim, link, from, to, step);
        link->newest_arrival_ns = largest(link->newest_arrival_ns, leave + sim->settings.latency_ns);
        slot_of(link, step)->arrive_ns = link->newest_arrival_ns;
        slot_of(link, step)->ack_ns = sim->settings.is_ib ? link->newest_arrival_ns + sim->settings.latency_ns : leave;
        slice_keep(sim, link, step, leave);
        from->tx_bytes += bytes;
        to->rx_bytes += bytes;
        call_at(sim, link->newest_arrival_ns, C_ARRIVE, at);
        want_ack(sim, at, link, slot_of(link, step)->ack_ns);
    }
    if (link->n_started != link->n_sent && !link->has_start_call) {
        link->has_start_call = 1;
        call_at(sim, slot_of(link, link->n_started)->start_ns, C_START, at);
    }
}

void path_arrive(struct sim *sim, int32_t at)
{
    struct link *link = &sim->links[at];
    uint32_t before = link->n_arrived;
    while (link->n_arrived != link->n_started && slot_of(link, link->n_arrived)->arrive_ns <= sim->now) {
        if (is_dead(sim, link)) {
            lose(link, link->n_arrived);
            return;
        }
        link->n_arrived++;
    }
    if (link->n_arrived != before)
        proxy_touch(sim, at, 1);
}

/* A credit is a message of the receiving machine, and goes behind what its NIC has in its queue. */
int64_t credit_arrival_ns(struct sim *sim, const struct link *link)
{
    const struct nic *from = nic_of(sim, link->spec.from_rank), *to = nic_of(sim, link->spec.to_rank);
    int64_t ns = sim->settings.credits_queue ? largest(to->tx_ns, sim->now) : sim->now;
    return is_dead(sim, link) ? NEVER : ns + sim->settings.latency_ns + from->hand_over_ns;
}

static void send_again(struct sim *sim, int32_t at)
{
    struct link *link = &sim->links[at];
    int64_t ns = sim->now;
    for (uint32_t step = link->n_arrived; step != link->n_started; step++) {
        ns += cost_ns(nic_of(sim, link->spec.from_rank), slot_of(link, step)->bytes_sent, 1);
        slot_of(link, step)->arrive_ns = link->newest_arrival_ns = ns + sim->settings.latency_ns;
        slot_of(link, step)->ack_ns = ns + 2 * sim->settings.latency_ns;
        call_at(sim, slot_of(link, step)->arrive_ns, C_ARRIVE, at);
    }
    for (uint32_t step = link->n_sent; step != link->n_credits; step++)
        if (slot_of(link, step)->credit_ns == NEVER)
            slot_of(link, step)->credit_ns = sim->now + sim->settings.latency_ns;
    link->is_lost = 0;
    link->has_ack_call = link->has_credit_call = 1;
    call_at(sim, ns + 2 * sim->settings.latency_ns, C_ACK, at);
    call_at(sim, sim->now + sim->settings.latency_ns, C_CREDIT, at);
}

void nic_up_again(struct sim *sim, int32_t nic)
{
    for (int32_t at = 0; at < sim->settings.n_links; at++) {
        const struct link *link = &sim->links[at];
        int uses = sim->ranks[link->spec.from_rank].spec.nic == nic || sim->ranks[link->spec.to_rank].spec.nic == nic;
        if (link->spec.is_network && uses && !is_dead(sim, link)) {
            send_again(sim, at);
            proxy_touch(sim, at, 1);
        }
    }
}

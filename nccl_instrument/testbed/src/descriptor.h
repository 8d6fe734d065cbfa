/* What a plugin is handed at the start of an event: bytes at published offsets. */
#ifndef DG_DESCRIPTOR_H
#define DG_DESCRIPTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DESCRIPTOR_BYTES 136

struct descriptor {
    _Alignas(8) uint8_t bytes[DESCRIPTOR_BYTES];
};

static inline void put_u64(struct descriptor *d, size_t offset, uint64_t value)
{
    memcpy(d->bytes + offset, &value, sizeof value);
}

static inline void put_pointer(struct descriptor *d, size_t offset, const void *value)
{
    memcpy(d->bytes + offset, &value, sizeof value);
}

static inline void put_i32(struct descriptor *d, size_t offset, int32_t value)
{
    memcpy(d->bytes + offset, &value, sizeof value);
}

static inline void put_u8(struct descriptor *d, size_t offset, int value)
{
    d->bytes[offset] = (uint8_t)value;
}

#endif

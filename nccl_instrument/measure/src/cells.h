/*
 * Cells of a flow as they leave a poll (measure.h): each says how many epochs after the one before it lies, so that it takes four
 * bytes; a pause too long for that takes cells without bytes.
 */
#ifndef DG_CELLS_H
#define DG_CELLS_H

#include "measure.h"

/* Writes the cell of an epoch later than *before, which becomes it; how many cells that took. */
static inline uint32_t dgm_put_cell(struct dgm_cell *cells, uint32_t *before, uint32_t epoch, uint16_t units) {
    uint32_t n = 0;
    for (; epoch - *before > UINT16_MAX; *before += UINT16_MAX)
        cells[n++] = (struct dgm_cell){UINT16_MAX, 0};
    cells[n++] = (struct dgm_cell){(uint16_t)(epoch - *before), units};
    *before = epoch;
    return n;
}

#endif

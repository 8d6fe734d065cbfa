/* Finds NCCL's own function behind the one of ours that was called.
 *
 * RTLD_NEXT sees a library that the program was linked with; one that was opened for one caller alone (PyTorch's extension
 * modules are) only by its name. A handle keeps it loaded, so that what was found stays.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#include "api.h"

static void *opened(const char *name, int how) { return name && *name ? dlopen(name, RTLD_LAZY | how) : NULL; }

static void *library(void) {
    static void *kept;
    void *found = ACQUIRE(kept);
    if (!found) found = opened(getenv("DIOGENES_NCCL_LIB"), 0);
    if (!found) found = opened("libnccl.so.2", RTLD_NOLOAD);
    if (!found) found = opened("libnccl.so", RTLD_NOLOAD);
    if (!found) found = opened("libnccl.so.2", 0);
    PUBLISH(kept, found);
    return found;
}

static int is_ours(const void *function) {
    static const char anchor;
    Dl_info us, it;
    return dladdr(&anchor, &us) && dladdr(function, &it) && us.dli_fbase == it.dli_fbase;
}

void *api_real(void **kept, const char *name) {
    void *found = ACQUIRE(*kept);
    if (found) return found;
    found = getenv("DIOGENES_NCCL_LIB") ? NULL : dlsym(RTLD_NEXT, name);
    if (!found || is_ours(found)) found = library() ? dlsym(library(), name) : NULL;
    if (found && is_ours(found)) found = NULL;
    PUBLISH(*kept, found);
    return found;
}

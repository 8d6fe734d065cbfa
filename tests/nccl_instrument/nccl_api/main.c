/* Opens the caller for itself alone, with the library it needs: nobody else sees either. `main MODULE SCENARIO`. */
#include <dlfcn.h>
#include <stdio.h>

int main(int n, char **words) {
    void *module = n == 3 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(const char *) = module ? (int (*)(const char *))dlsym(module, "run") : NULL;
    if (!run) return fprintf(stderr, "%s\n", n == 3 ? dlerror() : "MODULE SCENARIO"), 2;
    return run(words[2]);
}

/* driver PLUGIN ABI SCRIPT: runs one script against one version of the plugin's tables.
 *
 * At each stage it prints one line of JSON with what it did so far and waits for a line on stdin, so that the test (a
 * process of its own, as the agent is) can look at the segment meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

Did did;

void say_ready(const char *what) {
    printf("{\"stage\": \"%s\", \"mask\": %d, \"ops\": %llu, \"flows\": %llu, \"polls\": %llu, "
           "\"repeated_starts\": %llu, \"lost_stops\": %llu, \"bytes\": %llu}\n",
           what, profiler.mask, (unsigned long long)did.ops, (unsigned long long)did.flows,
           (unsigned long long)did.polls, (unsigned long long)did.repeated_starts,
           (unsigned long long)did.lost_stops, (unsigned long long)did.bytes);
    fflush(stdout);
    char line[64];
    if (!fgets(line, sizeof line, stdin)) exit(0);
}

static int script_run(const Script *script, const char *name) {
    while (script->name && strcmp(script->name, name)) script++;
    if (!script->name) return 0;
    script->run();
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s PLUGIN ABI SCRIPT\n", argv[0]);
        return 2;
    }
    profiler_load(argv[1], atoi(argv[2]));
    if (script_run(quirk_scripts, argv[3]) || script_run(safety_scripts, argv[3]) ||
        script_run(kernel_scripts, argv[3])) return 0;
    fprintf(stderr, "no script %s\n", argv[3]);
    return 2;
}

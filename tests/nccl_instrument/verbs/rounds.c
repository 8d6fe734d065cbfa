/* Many queue pairs that post ten times a second, so that the shim's files fill up: `rounds N`. */
#include "wire.h"

#define PAIRS 1100

int main(int n, char **words) {
    static struct dgv_qp_abi *pairs[PAIRS];
    wire_open();
    for (int i = 0; i < PAIRS; i++) pairs[i] = wire_connect(1 + i % 200);
    for (int round = 0; n == 2 && round < atoi(words[1]); round++) {
        for (int i = 0; i < PAIRS; i++) {
            wire_post(pairs[i], 1, 4096);
            MUST(wire_poll() == 1);
        }
        wire_wait(100000000);
    }
    MUST(wire_close(wire) == 0);
    return 0;
}

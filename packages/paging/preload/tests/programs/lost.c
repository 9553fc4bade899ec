/* Fills a large array, empties the files that a part of it is in, and reads it. */
#include <stdio.h>
#include <stdlib.h>

#define ITEMS ((size_t)3 << 20)

int main(int argc, char **argv) {
    char command[4096];
    unsigned *array = malloc(ITEMS * sizeof *array), wrong = 0, state = 1;
    for (size_t i = 0; i < ITEMS; i++)
        array[i] = state = state * 1664525u + 1013904223u;
    if (argc > 1) {
        snprintf(command, sizeof command, "find '%s' -type f -exec truncate -s 0 {} +", argv[1]);
        if (system(command))
            return 3;
    }
    state = 1;
    for (size_t i = 0; i < ITEMS; i++)
        wrong += array[i] != (state = state * 1664525u + 1013904223u);
    printf("wrong %u\n", wrong);
    return 0;
}

/* Threads that allocate, write, resize, compare and free, at once. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static void fill(uint32_t *at, size_t from, size_t to, uint32_t seed) {
    for (size_t i = from; i < to; i++)
        at[i] = (uint32_t)i * 2654435761u + seed;
}

static size_t wrong(const uint32_t *at, size_t items, uint32_t seed) {
    size_t count = 0;
    for (size_t i = 0; i < items; i++)
        count += at[i] != (uint32_t)i * 2654435761u + seed;
    return count;
}

static void *work(void *argument) {
    uint32_t seed = *(uint32_t *)argument;
    size_t bad = 0;
    for (int lap = 0; lap < 2; lap++) {
        /* Small, then paged, larger, a little smaller, ordinary again. */
        size_t sizes[] = {MIB, 6 * MIB, 9 * MIB, 8 * MIB, 2 * MIB, 5 * MIB};
        uint32_t *at = NULL;
        size_t had = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            at = realloc(at, sizes[i]);
            if (!at || malloc_usable_size(at) < sizes[i])
                return (void *)1;
            size_t has = sizes[i] / 4;
            bad += wrong(at, had < has ? had : has, seed);
            fill(at, had < has ? had : 0, has, seed);
            had = has;
        }
        at = reallocarray(at, 7, MIB);
        bad += at ? wrong(at, had, seed) : 1;
        free(at);
        char *zeros = calloc(5, MIB);
        for (size_t i = 0; i < 5 * MIB; i += 512)
            bad += zeros[i] != 0;
        free(zeros);
    }
    return (void *)bad;
}

/* All threads write to their own items of one array. */
static uint32_t *shared;
#define ITEMS (12 * MIB / 4)

static void *share(void *argument) {
    size_t own = *(uint32_t *)argument;
    for (uint32_t lap = 0; lap < 3; lap++)
        for (size_t i = own; i < ITEMS; i += 4) {
            if (shared[i] != (lap ? (uint32_t)i + lap - 1 : 0))
                return (void *)1;
            shared[i] = (uint32_t)i + lap;
        }
    return NULL;
}

static int all(void *(*run)(void *)) {
    pthread_t threads[4];
    uint32_t numbers[] = {0, 1, 2, 3};
    int bad = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, run, &numbers[i]);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        bad += result != NULL;
    }
    return bad;
}

int main(void) {
    shared = calloc(ITEMS, 4);
    printf("threads with something wrong: %d %d\n", all(work), all(share));
    free(shared);
    return 0;
}

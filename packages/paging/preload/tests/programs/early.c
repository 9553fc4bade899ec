/* A library with threads that allocate before `main`, and the program that is linked with it. */
#include <stdio.h>

int early_failures(void);

#ifdef LIBRARY
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define THREADS 4
#define BYTES ((size_t)32 << 10)

static int failures, arrived;

/* Has all threads go on at once, so that they call the same functions for the first time. */
static void meet(int lap) {
    __atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < THREADS * lap)
        ;
}

static void *first_call(int which) {
    void *at = NULL;
    switch (which) {
    case 0: return realloc(NULL, BYTES);
    case 1: return posix_memalign(&at, 64, BYTES) ? NULL : at;
    case 2: return aligned_alloc(64, BYTES);
    case 3: return memalign(64, BYTES);
    case 4: return calloc(1, BYTES);
    default: return malloc_usable_size(NULL) ? NULL : malloc(BYTES);
    }
}

static void check(char *at, int own) {
    int bad = !at;
    if (at) {
        memset(at, own, BYTES);
        for (size_t i = 0; i < BYTES; i++)
            bad |= at[i] != own;
        free(at);
    }
    __atomic_add_fetch(&failures, bad, __ATOMIC_ACQ_REL);
}

static void *work(void *argument) {
    int own = *(int *)argument;
    for (int which = 0; which < 6; which++) {
        meet(which + 1);
        check(first_call(which), own);
        for (int i = 0; i < 50; i++)
            check(malloc(BYTES), own);
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i + 1;
        if (pthread_create(&threads[i], NULL, work, &numbers[i]))
            abort();
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int early_failures(void) {
    return failures;
}
#else
int main(void) {
    printf("failures: %d\n", early_failures());
    return 0;
}
#endif

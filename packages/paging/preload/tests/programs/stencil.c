/* A stencil in three dimensions over arrays of every kind of allocation, with random looks at them.
   What it prints does not depend on where the memory is. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static unsigned long state = 7;

static size_t draw(size_t below) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return (state >> 33) % below;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* `steps` passes over each part of the field, so that a program may compute more or less. */
static void sweep(const double *a, double *b, size_t n, size_t layers, int steps) {
    size_t plane = n * n;
    for (size_t k = 1; k + 1 < layers; k++)
        for (int step = 0; step < steps; step++)
            for (size_t j = 1; j + 1 < n; j++)
                for (size_t i = 1; i + 1 < n; i++) {
                    size_t at = k * plane + j * n + i;
                    b[at] = 0.4 * a[at] + 0.1 * (a[at - 1] + a[at + 1] + a[at - n] + a[at + n] +
                                                 a[at - plane] + a[at + plane]);
                }
}

int main(int argc, char **argv) {
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 64;
    size_t layers = argc > 2 ? strtoul(argv[2], NULL, 10) : 256;
    int sweeps = argc > 3 ? atoi(argv[3]) : 4;
    int steps = argc > 4 ? atoi(argv[4]) : 1, looks = argc > 5 ? atoi(argv[5]) : 100;
    size_t items = n * n * layers, bytes = items * sizeof(double);
    double *a = malloc(bytes), *b = calloc(items, sizeof(double)), *c = NULL;
    double *d = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double *e = aligned_alloc(4096, bytes);
    if (!a || !b || d == MAP_FAILED || !e || posix_memalign((void **)&c, 64, bytes))
        return 1;
    for (size_t i = 0; i < items; i++)
        a[i] = (double)(i % 1000) * 1e-3 + (i == items / 2 ? 100 : 0);
    double begin = seconds();
    for (int lap = 0; lap < sweeps; lap++) {
        sweep(a, b, n, layers, steps);
        double *other = a;
        a = b, b = other;
        for (int look = 0; look < looks; look++) {
            size_t at = draw(items);
            printf("%zu %.17g\n", at, a[at]);
            b[draw(items)] += 1e-3 * (double)look;
        }
    }
    fprintf(stderr, "seconds %.3f\n", seconds() - begin);
    memcpy(c, a, bytes);
    memcpy(d, b, bytes);
    double sum = 0;
    for (size_t i = 0; i < items; i++) {
        e[i] = c[i] - d[i];
        sum += e[i] * (double)(i % 7);
    }
    printf("%.17g\n", sum);
    free(a), free(b), free(c), free(e);
    return munmap(d, bytes);
}

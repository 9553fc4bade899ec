/* Ends while threads use a large array, which is never freed, and looks at it while it ends. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define ITEMS ((size_t)2 << 20)
static double *array;

static void *work(void *none) {
    (void)none;
    for (size_t i = 0;; i = (i * 5 + 4099) % ITEMS)
        array[i & ~(size_t)511] += 1;
    return NULL;
}

static void look(void) {
    double sum = 0;
    for (size_t i = 1; i < ITEMS; i += 512)
        sum += array[i];
    printf("at the end %.1f\n", sum);
}

int main(void) {
    array = malloc(ITEMS * sizeof *array);
    for (size_t i = 0; i < ITEMS; i++)
        array[i] = (double)(i % 512);
    atexit(look);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
    }
    for (size_t i = 1; i < ITEMS; i += 512)
        array[i] += 1;
    exit(7);
}

/* A history of versions on a GPU, as in Listing 1 of Score (HPDC'23): a forward pass writes them, a
   backward pass reads them in reverse order, and what it will read was said beforehand.

   cc -o score score.c -lveloc-client -ldl
   ./score veloc.cfg

   with `scratch`, `persistent` and `mode` in the configuration, as always, and
   `device_memory = 4GiB` and `host_memory = 16GiB`. A stand-in for the computation fills the array:
   this program needs the CUDA driver, and no compiler of CUDA. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/veloc.h"

typedef unsigned long long device_pointer;

static struct {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set)(void *);
    int (*alloc)(device_pointer *, size_t);
    int (*release)(device_pointer);
    int (*fill)(device_pointer, unsigned, size_t, void *);
    int (*download)(void *, device_pointer, size_t);
} cuda;

static void find(void *driver, void *place, const char *name) {
    void *found = dlsym(driver, name);
    if (found == NULL) {
        fprintf(stderr, "the driver has no %s\n", name);
        exit(1);
    }
    memcpy(place, &found, sizeof found);
}

static int begin(void) {
    const char *named = getenv("UNSPOOL_CUDA_DRIVER");
    void *driver = dlopen(named != NULL ? named : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    void *context = NULL;
    if (driver == NULL) {
        return 0;
    }
    find(driver, &cuda.init, "cuInit");
    find(driver, &cuda.retain, "cuDevicePrimaryCtxRetain");
    find(driver, &cuda.set, "cuCtxSetCurrent");
    find(driver, &cuda.alloc, "cuMemAlloc_v2");
    find(driver, &cuda.release, "cuMemFree_v2");
    find(driver, &cuda.fill, "cuMemsetD32Async");
    find(driver, &cuda.download, "cuMemcpyDtoH_v2");
    return cuda.init(0) == 0 && cuda.retain(&context, 0) == 0 && cuda.set(context) == 0;
}

static void check(int is_right, const char *what) {
    if (!is_right) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

enum { VERSIONS = 96, MOST = 1 << 18 };

/* The compressed image of a version, whose size differs from one to the next. */
static size_t words_of(int version) { return MOST - (size_t)(version * 7919 % (MOST / 2)); }

int main(int argc, char **argv) {
    device_pointer image = 0;
    uint32_t *seen = malloc(MOST * sizeof *seen);
    check(argc == 2 && seen != NULL, "usage: score CONFIG");
    if (!begin()) {
        puts("score: skipped, no driver");
        return 0;
    }
    check(cuda.alloc(&image, MOST * sizeof *seen) == 0, "no memory on the GPU");
    void *ptr = (void *)(uintptr_t)image;
    check(VELOC_Init_single(0, argv[1]) == VELOC_SUCCESS, "VELOC_Init_single");

    for (int version = VERSIONS - 1; version >= 0; version--) {
        check(VELOC_Prefetch_enqueue("rtm", version) == VELOC_SUCCESS, "VELOC_Prefetch_enqueue");
    }
    for (int version = 0; version < VERSIONS; version++) {
        cuda.fill(image, 0x5eed0000u + (unsigned)version, words_of(version), NULL);
        VELOC_Mem_protect(1, ptr, words_of(version), sizeof *seen);
        check(VELOC_Checkpoint("rtm", version) == VELOC_SUCCESS, "VELOC_Checkpoint");
    }
    VELOC_Prefetch_start();
    for (int version = VERSIONS - 1; version >= 0; version--) {
        check(VELOC_Restart_begin("rtm", version) == VELOC_SUCCESS, "VELOC_Restart_begin");
        const int size = VELOC_Recover_size(1);
        check(size == (int)(words_of(version) * sizeof *seen), "another size");
        VELOC_Mem_protect(1, ptr, (size_t)size, 1);
        check(VELOC_Recover_mem() == VELOC_SUCCESS, "VELOC_Recover_mem");
        check(VELOC_Restart_end(1) == VELOC_SUCCESS, "VELOC_Restart_end");
        check(cuda.download(seen, image, (size_t)size) == 0, "cuMemcpyDtoH");
        for (size_t i = 0; i < words_of(version); i++) {
            check(seen[i] == 0x5eed0000u + (unsigned)version, "another image");
        }
    }
    check(VELOC_Finalize(1) == VELOC_SUCCESS, "VELOC_Finalize");
    check(cuda.release(image) == 0, "cuMemFree");
    free(seen);
    printf("%d versions came back in reverse order\n", VERSIONS);
    return 0;
}

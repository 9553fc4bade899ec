/* Arrays of a GPU through the driver's own calls, so that it runs on a fake driver as well. */

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unspool.h>

#include "check.h"

typedef unsigned long long device_pointer;

static struct {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*set)(void *);
    int (*alloc)(device_pointer *, size_t);
    int (*upload)(device_pointer, const void *, size_t);
    int (*download)(void *, device_pointer, size_t);
    int (*fill)(device_pointer, unsigned char, size_t, void *);
    int (*stream)(void **, unsigned);
    int (*synchronize)(void *);
    int (*release)(device_pointer);
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
    find(driver, &cuda.upload, "cuMemcpyHtoD_v2");
    find(driver, &cuda.download, "cuMemcpyDtoH_v2");
    find(driver, &cuda.fill, "cuMemsetD8Async");
    find(driver, &cuda.stream, "cuStreamCreate");
    find(driver, &cuda.synchronize, "cuStreamSynchronize");
    find(driver, &cuda.release, "cuMemFree_v2");
    return cuda.init(0) == 0 && cuda.retain(&context, 0) == 0 && cuda.set(context) == 0;
}

enum { COUNT = 50000, STEPS = 40 };

int main(int argc, char **argv) {
    if (!begin()) {
        puts("gpu: skipped, no driver");
        return 0;
    }
    unspool_options *options = NULL;
    unspool_spool *spool = NULL;
    OK(unspool_options_new(&options));
    OK(unspool_options_set(options, "device", "cuda:0"));
    OK(unspool_options_set(options, "device_memory", "2MiB"));
    OK(unspool_options_set(options, "host_memory", "32MiB"));
    OK(unspool_options_set(options, "codec", argc > 1 ? argv[1] : "none"));
    OK(unspool_open(options, &spool));
    unspool_options_free(options);
    void *stream = NULL;
    device_pointer u = 0, v = 0;
    float *host = malloc(COUNT * sizeof *host), *found = malloc(COUNT * sizeof *found);
    CHECK(cuda.stream(&stream, 1) == 0 && cuda.alloc(&u, COUNT * 4) == 0);
    CHECK(cuda.alloc(&v, COUNT * 4) == 0);
    const int64_t count = COUNT;
    double time = 0;
    const unspool_array state[2] = {{"u", (void *)(uintptr_t)u, UNSPOOL_FLOAT32, 1, &count},
                                    {"t", &time, UNSPOOL_FLOAT64, 0, NULL}};
    const unspool_array target[2] = {{"u", (void *)(uintptr_t)v, UNSPOOL_FLOAT32, 1, &count},
                                     {"t", &time, UNSPOOL_FLOAT64, 0, NULL}};
    int64_t order[STEPS];
    for (int64_t step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            host[i] = (float)(i % 1000) + (float)step;
        }
        time = (double)step / 4;
        CHECK(cuda.upload(u, host, COUNT * 4) == 0);
        OK(unspool_save(spool, step, state, 2, stream));
        /* What comes later on the stream does not change what was saved. */
        CHECK(cuda.fill(u, 0xEE, COUNT * 4, stream) == 0 && cuda.synchronize(stream) == 0);
        order[STEPS - 1 - step] = step;
    }
    OK(unspool_expect(spool, order, STEPS, 1));
    for (int64_t step = STEPS - 1; step >= 0; step--) {
        OK(unspool_restore(spool, step, target, 2, stream));
        CHECK(cuda.synchronize(stream) == 0 && cuda.download(found, v, COUNT * 4) == 0);
        for (int i = 0; i < COUNT; i++) {
            CHECK(found[i] == (float)(i % 1000) + (float)step);
        }
        CHECK(time == (double)step / 4);
    }
    OK(unspool_close(spool, 30, 0));
    unspool_free(spool);
    CHECK(cuda.release(u) == 0 && cuda.release(v) == 0);
    free(host);
    free(found);
    puts("gpu: all right");
    return 0;
}

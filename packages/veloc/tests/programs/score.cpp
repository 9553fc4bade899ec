// The calls of Score's programs, in their order: a history that is announced, saved and restored in
// reverse, in main memory.

#include <cstdio>
#include <cstring>

#include "veloc.h"

#define CHECK(what) \
    if (!(what)) { \
        std::fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
        return 1; \
    }

int main(int, char **argv) {
    const char *name = "shot_0";
    int data[1000];
    CHECK(VELOC_Init_single(0, argv[1]) == VELOC_SUCCESS);
    for (int i = 7; i >= 0; i--)
        CHECK(VELOC_Prefetch_enqueue(name, i) == VELOC_SUCCESS);
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 1000; k++)
            data[k] = i + k;
        CHECK(VELOC_Mem_protect(0, data, 993 + i, sizeof(int), DEFAULT) == VELOC_SUCCESS);
        CHECK(VELOC_Checkpoint(name, i) == VELOC_SUCCESS);
        VELOC_Mem_unprotect(0);
    }
    CHECK(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
    CHECK(VELOC_Prefetch_start() == VELOC_SUCCESS);
    for (int i = 7; i >= 0; i--) {
        size_t bytes = VELOC_Recover_ckpt_size(name, i, 0);
        CHECK(bytes == (993 + i) * sizeof(int));
        CHECK(VELOC_Mem_protect(0, data, 993 + i, sizeof(int), READ_ONLY, NULL) == VELOC_SUCCESS);
        std::memset(data, 0, sizeof data);
        CHECK(VELOC_Restart(name, i) == VELOC_SUCCESS);
        for (int k = 0; k < 993 + i; k++)
            CHECK(data[k] == i + k);
        VELOC_Mem_unprotect(0);
        CHECK(i == 0 || VELOC_Next_prefetched(name, i - 1, 0));
    }
    CHECK(!VELOC_Next_prefetched(name, 99, 0));
    CHECK(VELOC_Recover_ckpt_size(name, 3, 1) == (size_t)-1);
    CHECK(VELOC_Recover_ckpt_size(name, 99, 0) == (size_t)-1);
    char metrics[VELOC_MAX_NAME];
    VELOC_Get_trf_metrics(metrics);
    std::puts(metrics);
    return VELOC_Finalize(0) == VELOC_SUCCESS ? 0 : 1;
}

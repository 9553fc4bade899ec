/* The interface of Score's version of VELOC (HPDC'23; the artifact calls it VeloC-GPU), for
   programs in C++ that were written for it: this folder comes first on the compiler's path. It adds
   names to VELOC's own, some of them short, so that it is apart. Link with -lveloc-client.

   A configuration may say `gpu_cache_size` and `host_cache_size`, numbers of GiB. */

#ifndef VELOC_GPU_VELOC_H
#define VELOC_GPU_VELOC_H

#include "../veloc.h"

#include <string.h>

/* Flags of a region. They change nothing: a checkpoint is a copy. */
#ifndef DEFAULT
#define DEFAULT (0)
#endif
#ifndef READ_ONLY
#define READ_ONLY (1)
#endif

/* Never called: a region may be changed when the call that saves it has returned. */
typedef int (*release_routine)(void);

#ifdef __cplusplus
extern "C" {
#else
#include <stdbool.h>
#endif

/* Returns the bytes of a region of a checkpoint in scratch; the largest size_t when it has none. */
size_t VELOC_Recover_ckpt_size(const char *name, int version, int region_id);

/* Whether all bytes of a checkpoint are in the fastest tier now. `region_id` is not looked at. */
bool VELOC_Next_prefetched(const char *name, int version, int region_id);

/* Writes to `metrics`, which has room for VELOC_MAX_NAME bytes, how many bytes were moved so far by
   each way, such as "{AtoD : 4096, DtoA : 0, DtoH : 4096, }": A is the application, D the device,
   H main memory, F the disk. */
void VELOC_Get_trf_metrics(char *metrics);

#ifdef __cplusplus
}

static inline int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size,
                                    unsigned int flags, release_routine release = 0) {
    (void)flags;
    (void)release;
    return VELOC_Mem_protect(id, ptr, count, base_size);
}
#endif

#endif /* VELOC_GPU_VELOC_H */

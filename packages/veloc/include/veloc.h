/* VELOC's interface, on the engine of Unspool. Link with -lveloc-client.

   Every function returns VELOC_SUCCESS or VELOC_FAILURE unless it says something else; after a
   failure a line on standard error says what failed, why, and what to do. A process has one
   client. Names of checkpoints have letters, digits, `_` and `.`; versions are 0 or more.

   The guide is docs/howto/veloc.md of Unspool. */

#ifndef VELOC_H
#define VELOC_H

#include <stddef.h>

#ifdef __has_include
#if __has_include(<mpi.h>)
#include <mpi.h>
#define VELOC_HAS_MPI 1
#endif
#else
#include <mpi.h>
#define VELOC_HAS_MPI 1
#endif

#include "veloc/defs.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef VELOC_HAS_MPI
/* Begins, on all ranks of `comm`: a checkpoint is one of all of them. `cfg_file` is the path of a
   file with lines of `key = value`. After MPI_Init. */
int VELOC_Init(MPI_Comm comm, const char *cfg_file);
#endif

/* Begins without MPI: `id` tells clients apart that share the same folders. */
int VELOC_Init_single(unsigned int id, const char *cfg_file);

/* Waits until what was saved is durable, and ends, whatever `cleanup` is. Before MPI_Finalize. A
   failure means that something is not durable. */
int VELOC_Finalize(int cleanup);

/* Memory.

   Pointers are of the host or of a GPU, which is found out from the pointer. Copies of a GPU's
   memory come after what is on its default stream, and are done when the call returns. */

/* Protects `count` items of `base_size` bytes at `ptr` under the number `id`, in place of what had
   that number. */
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);

/* The same for checkpoints called `name` only. */
int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name);

/* Forgets a region. A failure means that there was none. */
int VELOC_Mem_unprotect(int id);
int VELOC_Region_unprotect(int id, const char *name);

/* Forgets all regions that VELOC_Mem_protect was called for, or those of a name. */
int VELOC_Mem_clear(void);
int VELOC_Region_clear(const char *name);

/* Files. */

/* Writes to `routed`, which has room for VELOC_MAX_NAME bytes, the path of the file that belongs to
   the open checkpoint or restart: SCRATCH/NAME-RANK-VERSION.dat. `original` is not looked at. */
int VELOC_Route_file(const char *original, char *routed);

/* Removes all checkpoints called `name` of this rank in scratch. Those in persistent stay. */
int VELOC_Cleanup(const char *name);

/* Checkpoints. */

/* Opens a checkpoint; a checkpoint of the same name and version that is in scratch gives way. */
int VELOC_Checkpoint_begin(const char *name, int version);

/* Saves the regions that `mode` and `count` numbers at `ids` mean: VELOC_CKPT_ALL, _SOME, _REST.
   They may be changed when it has returned. Once in a checkpoint. */
int VELOC_Checkpoint_selective(int mode, int *ids, int count);

/* Saves all regions. */
int VELOC_Checkpoint_mem(void);

/* Closes the checkpoint; with 0 it is given up. In the mode `sync` it is durable afterwards, in
   scratch and in persistent; in the mode `async` it becomes so in the background. */
int VELOC_Checkpoint_end(int success);

/* Waits until what was saved is durable. */
int VELOC_Checkpoint_wait(void);

/* VELOC_SUCCESS when nothing is on its way any more, else VELOC_FAILURE, without a line. */
int VELOC_Checkpoint_finished(void);

/* VELOC_Checkpoint_begin, _mem and _end. */
int VELOC_Checkpoint(const char *name, int version);

/* Restarts. */

/* Returns the latest version, up to `version` if that is not 0, that all ranks have in scratch or
   in persistent; -1 when there is none. All ranks call it. */
int VELOC_Restart_test(const char *name, int version);

/* Opens a restart. What is not in scratch is brought there from persistent. */
int VELOC_Restart_begin(const char *name, int version);

/* Copies the regions that are meant to where they are protected: VELOC_RECOVER_ALL, _SOME, _REST. A
   region may be protected with more bytes than it had. */
int VELOC_Recover_selective(int mode, int *ids, int count);

/* Copies all regions. */
int VELOC_Recover_mem(void);

/* Returns how many bytes the region has in the open restart, -1 when it has none. */
int VELOC_Recover_size(int id);

/* Closes the restart. The argument is not looked at. */
int VELOC_Restart_end(int success);

/* VELOC_Restart_begin, VELOC_Recover_mem and VELOC_Restart_end. */
int VELOC_Restart(const char *name, int version);

/* Histories, after Score (HPDC'23). Names come first here, as elsewhere in this interface. */

/* Says that this version will be restored next, after those that were said before. It need not be
   saved yet. Advice: restarts in another order are served as well. */
int VELOC_Prefetch_enqueue(const char *name, int version);

/* Lets what was said be brought back to fast memory from now on; else the first restart does. */
int VELOC_Prefetch_start(void);

#ifdef __cplusplus
}
#endif

#endif /* VELOC_H */

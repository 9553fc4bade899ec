/* The C interface of Unspool: a history of checkpoints on GPUs, in pinned memory and
   on disk.

   Every function but those that give a handle back returns a code of unspool_status, 0 when all
   went well. After another code unspool_last_error() says on the same thread what failed, why,
   and what to do. Handles are opaque; a spool may be used by several threads at once, every other
   handle by one at a time. Texts are UTF-8 and end with a zero byte.

   This file is made from the sources in c: do not edit it. */

#ifndef UNSPOOL_H
#define UNSPOOL_H

#include <stddef.h>
#include <stdint.h>

// The version of the interface that this header is for. It is raised when programs have to be
// compiled again.
#define UNSPOOL_ABI 2

// The codes that every function returns.
typedef enum unspool_status {
  // All went well.
  UNSPOOL_OK = 0,
  // An argument or an option makes no sense.
  UNSPOOL_INVALID = 1,
  // The version is already saved.
  UNSPOOL_DUPLICATE = 2,
  // The version was never saved.
  UNSPOOL_UNKNOWN = 3,
  // The version was saved and then discarded.
  UNSPOOL_DISCARDED = 4,
  // The version is being saved by a call that has not ended.
  UNSPOOL_NOT_YET_SAVED = 5,
  // The checkpoint is larger than every tier.
  UNSPOOL_TOO_LARGE = 6,
  // No room can be made in any tier.
  UNSPOOL_FULL = 7,
  // A medium failed.
  UNSPOOL_IO = 8,
  // The bytes that came back are not those that were saved.
  UNSPOOL_CORRUPT = 9,
  // The last copy of the checkpoint is lost.
  UNSPOOL_LOST = 10,
  // The call waited for as long as it was allowed to.
  UNSPOOL_TIMEOUT = 11,
  // The wait was ended from outside.
  UNSPOOL_INTERRUPTED = 12,
  // The history was opened for reading, and the call would change it.
  UNSPOOL_READ_ONLY = 13,
  // The spool is closed.
  UNSPOOL_CLOSED = 14,
  // The spool belongs to the process that forked this one.
  UNSPOOL_FORKED = 15,
  // CUDA refused, or work on the GPU failed.
  UNSPOOL_DEVICE = 16,
  // An array or a stream belongs to another GPU than the spool.
  UNSPOOL_WRONG_DEVICE = 17,
  // There is no CUDA driver, or no such GPU.
  UNSPOOL_NO_DEVICE = 18,
  // What a codec made is further from the values than its bound allows.
  UNSPOOL_BOUND_VIOLATED = 19,
  // A mistake in Unspool itself.
  UNSPOOL_INTERNAL = 20,
} unspool_status;

// The types of items, by the numbers that stand for them in a frame.
typedef enum unspool_dtype {
  UNSPOOL_BOOL = 1,
  UNSPOOL_INT8 = 2,
  UNSPOOL_INT16 = 3,
  UNSPOOL_INT32 = 4,
  UNSPOOL_INT64 = 5,
  UNSPOOL_UINT8 = 6,
  UNSPOOL_UINT16 = 7,
  UNSPOOL_UINT32 = 8,
  UNSPOOL_UINT64 = 9,
  UNSPOOL_FLOAT16 = 16,
  UNSPOOL_BFLOAT16 = 17,
  UNSPOOL_FLOAT32 = 18,
  UNSPOOL_FLOAT64 = 19,
  UNSPOOL_COMPLEX64 = 25,
  UNSPOOL_COMPLEX128 = 26,
} unspool_dtype;

// What the program does next. `from` and `to` are steps; state n is the state before step n.
typedef enum unspool_action_kind {
  // Advance the working state from state `from` to state `to`.
  UNSPOOL_FORWARD = 0,
  // Save the working state, which is state `from`, as version `from`.
  UNSPOOL_SAVE = 1,
  // Restore version `from`: the working state is state `from` then.
  UNSPOOL_RESTORE = 2,
  // The working state is state `from`: take the adjoint back over step `from`.
  UNSPOOL_REVERSE = 3,
  // Discard version `from`.
  UNSPOOL_DISCARD = 4,
  // Every step was reversed; nothing follows.
  UNSPOOL_END = 5,
} unspool_action_kind;

// One rank's hold on the folder of a run. Used by one thread, but for `unspool_checkpointer_stop`.
typedef struct unspool_checkpointer unspool_checkpointer;

// What a rank has heard from the others: `all_gather` of `unspool_ranks` fills it.
typedef struct unspool_gathered unspool_gathered;

// The arrays of one checkpoint.
typedef struct unspool_info unspool_info;

// The options of a spool.
typedef struct unspool_options unspool_options;

// The parts of a checkpoint that its ranks have saved.
typedef struct unspool_parts unspool_parts;

// An iterator of actions.
typedef struct unspool_schedule unspool_schedule;

// One history of checkpoints, with its tiers and workers.
typedef struct unspool_spool unspool_spool;

// A dense array in C order (the last dimension changes fastest), in memory of the host or of a
// GPU; which of both is found out from the pointer. An array of Fortran has its dimensions here in
// reverse order.
typedef struct unspool_array {
  // Its name; with a null pointer in all arrays of a call they are known by their positions.
  const char *name;
  // The address of its first item; may be null when it has none.
  void *data;
  // The type of its items: a value of `unspool_dtype`.
  int dtype;
  // The number of its dimensions; 0 is a scalar.
  int ndim;
  // Its dimensions, `ndim` of them. May be null for a scalar.
  const int64_t *shape;
} unspool_array;

// The ranks of a job, as the program has them. `unspool_mpi.h` makes them of a communicator of
// MPI.
//
// `all_gather` gives `bytes` bytes at `message` to every rank, and calls `unspool_gathered_set`
// for each rank that has answered within `seconds`, itself included. Every rank calls it
// equally often. It returns 0 also when ranks are missing, and another number when it failed.
//
// `pass` gives a message to rank `to` alone, and calls `unspool_gathered_set` for what rank `from`
// has given to this one. All ranks call it together. When that does not come within `seconds`, it
// returns 0 without, or calls `unspool_gathered_set` for each rank that is there, itself included.
// May be null: such messages go to all ranks then.
typedef struct unspool_ranks {
  // Is given to `all_gather`.
  void *context;
  // The number of this rank.
  uint32_t rank;
  // The number of ranks.
  uint32_t size;
  // See above.
  int (*all_gather)(void *context,
                    const void *message,
                    size_t bytes,
                    double seconds,
                    struct unspool_gathered *gathered);
  // See above.
  int (*pass)(void *context,
              const void *message,
              size_t bytes,
              uint32_t to,
              uint32_t from,
              double seconds,
              struct unspool_gathered *gathered);
} unspool_ranks;

// One action of a schedule.
typedef struct unspool_action {
  // A value of `unspool_action_kind`.
  int kind;
  // The step that it is about; for `UNSPOOL_FORWARD` the first one.
  int64_t from;
  // For `UNSPOOL_FORWARD` the step after the last one, else `from`.
  int64_t to;
} unspool_action;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The sentence about the last call of this thread that failed; empty when none has. It is valid
// until the next call of this thread.
const char *unspool_last_error(void);

// The version of the interface, to be compared with `UNSPOOL_ABI`: a program that was compiled for
// another one must not go on.
int unspool_abi(void);

// The version of the library, such as "0.1.0".
const char *unspool_version(void);

// Makes options, all of them as they are by default: no tier yet. Give them back with
// `unspool_options_free`.
int unspool_options_new(struct unspool_options **options);

// Sets an option to a value that is written as text.
//
// | option | value |
// | --- | --- |
// | `device_memory`, `host_memory` | the size of a tier, such as `4GiB`, or `auto` |
// | `device` | where the device tier is: `auto`, `cpu`, `cuda`, `cuda:1` |
// | `shrink_ok` | whether a smaller device tier will do: `true`, `false` |
// | `disk` | the directory of the disk tier |
// | `disk.capacity` | the most bytes there, such as `100GiB` |
// | `disk.durable` | whether checkpoints outlive the spool |
// | `disk.mode` | `a` to read and add, `r` to read only |
// | `disk.permissions` | of durable files, octal: `600` |
// | `disk.compress` | `zstd`, `lz4`, `archive` |
// | `codec` | `none`, `lossless`, `auto`, a bound such as `abs=1e-3`, `zfp-rate=8` |
// | `codec.NAME` | the same for the arrays of this name |
// | `learn` | whether restores are announced from what earlier iterations restored |
// | `timeout` | the longest that one call waits, such as `30s`: 300 s; ranks add up to 11 s |
// | `verify` | whether checksums of what comes from the disk are compared: `true` |
// | `trace` | whether what happens is kept for `unspool_write_trace` |
//
// Those of a checkpointer are at `unspool_checkpointer_open`.
//
// Returns `UNSPOOL_INVALID`, and leaves the options as they were, when there is no such option or
// the value makes no sense.
int unspool_options_set(struct unspool_options *options,
                        const char *name,
                        const char *value);

// Gives options back. Spools that were opened with them are not concerned.
void unspool_options_free(struct unspool_options *options);

// Opens a spool. Close it with `unspool_close`, and give it back with `unspool_free`.
//
// Errors: `UNSPOOL_INVALID` when the options make no sense together, `UNSPOOL_IO` when a tier
// cannot be made, `UNSPOOL_NO_DEVICE`, `UNSPOOL_DEVICE`.
int unspool_open(const struct unspool_options *options, struct unspool_spool **spool);

// Saves arrays under `version`, a number that is not saved already.
//
// Memory of a GPU is copied on `stream` (a `cudaStream_t` or `CUstream`; null: the legacy default
// stream), after what is on it: the call returns when the copy is enqueued, and what is enqueued
// on that stream later may change the array. Memory of the host may be changed when the call has
// returned. It waits while no tier has room, at most for the spool's time-out; with a codec also
// until the GPU has encoded the arrays, where its tier has room for fewer than eight checkpoints.
//
// Errors: `UNSPOOL_DUPLICATE`, `UNSPOOL_FULL`, `UNSPOOL_TOO_LARGE`, `UNSPOOL_TIMEOUT`,
// `UNSPOOL_DEVICE`, `UNSPOOL_WRONG_DEVICE`, `UNSPOOL_CLOSED`. Nothing was saved then, and the same
// call can be made again.
int unspool_save(const struct unspool_spool *spool,
                 int64_t version,
                 const struct unspool_array *arrays,
                 size_t count,
                 void *stream);

// Restores `version` into arrays of the types and shapes that were saved: all of them in the order
// of the save, or some by name. Memory of the host has its values when the call returns; that of a
// GPU when what is enqueued on `stream` before the return is done.
//
// Errors: `UNSPOOL_UNKNOWN`, `UNSPOOL_DISCARDED`, `UNSPOOL_LOST`, `UNSPOOL_CORRUPT`,
// `UNSPOOL_INVALID` when an array does not fit, `UNSPOOL_TIMEOUT`, `UNSPOOL_DEVICE`,
// `UNSPOOL_CLOSED`. What the arrays hold is unspecified then.
int unspool_restore(const struct unspool_spool *spool,
                    int64_t version,
                    const struct unspool_array *arrays,
                    size_t count,
                    void *stream);

// Appends `count` versions to the order in which checkpoints will be restored, so that they are
// brought back before they are asked for. A version may be named before it is saved, and more than
// once. Advice: a restore in another order is served as well.
//
// With `once` other than 0, each of them is discarded when the last restore of it that is named
// here is done; what is not saved yet holds back all that would be brought back before the first
// restore.
int unspool_expect(const struct unspool_spool *spool,
                   const int64_t *versions,
                   size_t count,
                   int once);

// Forgets the restore order.
int unspool_forget_expected(const struct unspool_spool *spool);

// Discards a checkpoint: its room is free for others, and its version may be saved again.
//
// Errors: `UNSPOOL_UNKNOWN`, `UNSPOOL_DISCARDED`, `UNSPOOL_READ_ONLY`.
int unspool_discard(const struct unspool_spool *spool, int64_t version);

// Brings every checkpoint to its slowest tier; those of a durable disk survive a crash from then
// on. Waits at most `timeout` seconds; 0 stands for the option `timeout`.
//
// Errors: `UNSPOOL_FULL`, `UNSPOOL_IO`, `UNSPOOL_TOO_LARGE`, `UNSPOOL_TIMEOUT`. What is not
// flushed stays where it is.
int unspool_flush(const struct unspool_spool *spool,
                  double timeout);

// Writes the versions that can be restored, in ascending order, to `versions`, which has room for
// `room` of them, and how many there are to `count`. With less room than that, those that fit are
// written.
int unspool_versions(const struct unspool_spool *spool,
                     int64_t *versions,
                     size_t room,
                     size_t *count);

// Writes whether `version` can be restored (1 or 0) to `answer`.
int unspool_contains(const struct unspool_spool *spool, int64_t version, int *answer);

// Writes whether `version` survives a crash of the machine (1 or 0) to `answer`.
int unspool_durable(const struct unspool_spool *spool, int64_t version, int *answer);

// Writes what happened when to a file that https://ui.perfetto.dev shows; the spool was opened with
// the option `trace`.
int unspool_write_trace(const struct unspool_spool *spool,
                        const char *path);

// Ends the work. A durable spool brings everything to the disk first; when that fails, or takes
// longer than `timeout` seconds (0 stands for the option `timeout`), the spool stays open and can
// be closed again. With `discard_unflushed` other than 0 it is closed in any case, and what was
// not durable is given up and named by the error. A closed spool may be closed again.
int unspool_close(const struct unspool_spool *spool,
                  double timeout,
                  int discard_unflushed);

// Gives a spool back. One that is not closed is closed first, and what it cannot make durable is
// given up without a word: close it before.
void unspool_free(struct unspool_spool *spool);

// Takes in what `rank` has given; the bytes are copied.
int unspool_gathered_set(struct unspool_gathered *gathered,
                         uint32_t rank,
                         const void *message,
                         size_t bytes);

// Opens the folder of a run, on all ranks: each has a folder in it. `options` has what a spool is
// opened with, but for the disk, and when a checkpoint is due:
//
// | option | value |
// | --- | --- |
// | `every` | a time such as `10min`, a number of steps such as `100`, `auto` (default), `never` |
// | `keep` | how many checkpoints that count stay: 2 |
// | `mtbf`, `share` | for `auto`: mean time between failures; the most that saves may cost |
// | `limit` | the time after which the run is asked to stop |
// | `remote` | where copies go: `s3://bucket/prefix`, `gs://`, `az://`, or a directory |
// | `remote_every` | which of them: like `every`; `auto` is each one for which there is time |
// | `increments` | `auto`, or one in how many checkpoints is stored in full; `never` |
// | `partner` | like `every`: which of them a rank on another machine keeps as well; `never` |
//
// `ranks` is null for a job of one rank; it is copied, and what its context points to has to stay.
// A checkpoint counts when all ranks have all of it on the disk. Close it with
// `unspool_checkpointer_close`, and give it back with `unspool_checkpointer_free`.
//
// Errors: `UNSPOOL_INVALID` when another number of ranks has left checkpoints there, or an option
// of a disk was set; `UNSPOOL_IO`; `UNSPOOL_TIMEOUT` when ranks do not answer; the error of
// another rank.
int unspool_checkpointer_open(const char *path,
                              const struct unspool_options *options,
                              const struct unspool_ranks *ranks,
                              struct unspool_checkpointer **checkpointer);

// Writes whether the checkpoint of `step` is due (1 or 0) to `answer`: the same on all ranks,
// which ask each other about once a second. Errors: `UNSPOOL_TIMEOUT` when a rank does not
// answer.
int unspool_checkpointer_due(const struct unspool_checkpointer *checkpointer,
                             int64_t step,
                             int *answer);

// Saves the checkpoint of `step`, due or not: arrays as for `unspool_save`, and with them
// `values`, a text of the program's own of at most 1 MiB, or null. When it returns, arrays may
// be changed; the checkpoint counts later. An error until then is reported by the next call, and
// the last checkpoint that counts stays.
//
// Errors: `UNSPOOL_INVALID` when the step does not come after the last one, or after what lies
// in the folder when nothing was restored; those of `unspool_save`; `UNSPOOL_IO`,
// `UNSPOOL_FULL` for an earlier checkpoint that does not count; `UNSPOOL_TIMEOUT` when a rank
// does not answer.
int unspool_checkpointer_save(const struct unspool_checkpointer *checkpointer,
                              int64_t step,
                              const struct unspool_array *arrays,
                              size_t count,
                              const char *values,
                              void *stream);

// Writes the step of the newest checkpoint that counts to `step`; -1 when there is none.
int unspool_checkpointer_latest(const struct unspool_checkpointer *checkpointer, int64_t *step);

// Copies the newest checkpoint that counts into arrays, as `unspool_restore` does, and writes its
// step to `step`; -1 when there is none. What a rank lacks or has damaged comes from the rank that
// keeps a copy, or else from the remote place; when there is none, all ranks take the next older
// checkpoint.
// `unspool_checkpointer_notes` says why.
//
// Errors: `UNSPOOL_INVALID` when an array does not fit, here or on another rank; `UNSPOOL_TIMEOUT`
// when a rank does not answer; `UNSPOOL_DEVICE`.
int unspool_checkpointer_restore(const struct unspool_checkpointer *checkpointer,
                                 const struct unspool_array *arrays,
                                 size_t count,
                                 void *stream,
                                 int64_t *step);

// Writes the text that was saved with `step` to `values`, which has room for `room` bytes, its
// zero byte included, and its length without that to `length`. With less room than that it is
// cut off.
//
// Errors: `UNSPOOL_UNKNOWN` when the step does not count on this rank.
int unspool_checkpointer_values(const struct unspool_checkpointer *checkpointer,
                                int64_t step,
                                char *values,
                                size_t room,
                                size_t *length);

// Writes what was found damaged, and which copies did not get to the remote place, in sentences,
// one in a line, as `unspool_checkpointer_values` does for its text; empty when nothing was.
int unspool_checkpointer_notes(const struct unspool_checkpointer *checkpointer,
                               char *notes,
                               size_t room,
                               size_t *length);

// Asks the run to stop: a checkpoint is due then, once, on all ranks. May be called from any
// thread and from a signal handler.
void unspool_checkpointer_stop(const struct unspool_checkpointer *checkpointer);

// Whether the run is to stop (1 or 0), as it was asked to, or its limit was reached, on any rank.
// This is what the last `unspool_checkpointer_due` or `unspool_checkpointer_save` found. With one
// rank the call also looks itself, unless the last step that was asked for was not due.
int unspool_checkpointer_stopping(const struct unspool_checkpointer *checkpointer);

// Waits until everything that was saved is durable on this rank, at most `timeout` seconds; 0
// stands for the option `timeout`. An error says what is not durable, and why.
int unspool_checkpointer_flush(const struct unspool_checkpointer *checkpointer, double timeout);

// Waits until everything that was saved counts, deletes what is not kept, and ends, on all ranks.
// What cannot be made durable is tried once more; then this is an error, and it is open as before
// and can be closed again. Every call after it has ended is `UNSPOOL_CLOSED`.
int unspool_checkpointer_close(const struct unspool_checkpointer *checkpointer,
                               double timeout);

// Gives it back, once; null is fine. What is not closed gives up what does not count yet, without
// a word.
void unspool_checkpointer_free(struct unspool_checkpointer *checkpointer);

// Finds the parts of a checkpoint in the folder of a run of any number of ranks, also when a
// program in Python has saved it: of the one whose step is at `step`, or with -1 there of the
// newest one of which all parts are there. Writes its step to `step` and the number of its ranks
// to `ranks`. Nothing is changed in the folder. Give the answer back with `unspool_parts_free`.
//
// Errors: `UNSPOOL_UNKNOWN` when not all parts of it are there; `UNSPOOL_IO`.
int unspool_parts_find(const char *path,
                       int64_t *step,
                       uint32_t *ranks,
                       struct unspool_parts **parts);

// Opens the arrays that a rank has saved as a spool for reading, which has them under the step as
// version: `unspool_describe` says which there are, `unspool_restore` copies them. Give it back
// with `unspool_free`.
//
// Errors: `UNSPOOL_INVALID` when there is no such rank; `UNSPOOL_UNKNOWN` when a run has deleted
// the part meanwhile; `UNSPOOL_IO`, `UNSPOOL_CORRUPT`, `UNSPOOL_LOST`.
int unspool_parts_open(const struct unspool_parts *parts,
                       uint32_t rank,
                       struct unspool_spool **part);

// Writes the text that a rank has saved with its arrays, as `unspool_checkpointer_values` does.
// That of a program in Python is JSON, with the small values under `values`.
//
// Errors: `UNSPOOL_INVALID` when there is no such rank.
int unspool_parts_values(const struct unspool_parts *parts,
                         uint32_t rank,
                         char *values,
                         size_t room,
                         size_t *length);

// Gives the answer back. Spools that were opened from it stay.
void unspool_parts_free(struct unspool_parts *parts);

// Looks up what the arrays of `version` are. Give the answer back with `unspool_info_free`.
//
// Errors: `UNSPOOL_UNKNOWN`, `UNSPOOL_DISCARDED`.
int unspool_describe(const struct unspool_spool *spool,
                     int64_t version,
                     struct unspool_info **info);

// The number of its arrays; 0 for a null pointer.
size_t unspool_info_count(const struct unspool_info *info);

// Writes what array `index` is to `array`: name, type and shape, which are valid until the answer
// is given back, and no data. The type of items that this library keeps without knowing them is 0.
int unspool_info_array(const struct unspool_info *info,
                       size_t index,
                       struct unspool_array *array);

// Gives the answer back.
void unspool_info_free(struct unspool_info *info);

// Writes one figure of what the spool has done to `value`.
//
// | name | |
// | --- | --- |
// | `saves`, `restores`, `discards` | calls that succeeded |
// | `saved_bytes`, `restored_bytes` | their bytes, as they are stored |
// | `checkpoints` | those that are there |
// | `unflushed`, `unflushed_bytes` | those that a flush waits for |
// | `save_stall_seconds`, `restore_stall_seconds` | for how long calls have waited |
// | `kernels_seconds` | what of both was for kernels of a GPU to be loaded |
// | `hinted_restores`, `hints` | restores that `unspool_expect` announced; those to come |
// | `dropped_spans` | spans that did not fit into the trace |
// | `device_capacity`, `host_capacity`, `disk_capacity` | bytes of a tier; 0 without it |
// | `device_used`, `host_used`, `disk_used` | bytes in use there |
//
// Returns `UNSPOOL_INVALID` for another name.
int unspool_stat(const struct unspool_spool *spool, const char *name, double *value);

// Makes a schedule for `steps` steps of which at most `slots` states are kept at a time.
//
// | kind | `slots` |
// | --- | --- |
// | `store-all` | any; every state is kept |
// | `revolve` | Revolve (Griewank and Walther, TOMS 2000): as few steps again as they allow |
// | `online-revolve` | for `steps` 0, not known yet (Stumm and Walther, SISC 2010) |
// | `uniform` | states at equal distances |
// | `zcut` | zCut (GPUZIP): each step is computed again once at most |
//
// The forward pass of an online schedule ends with `unspool_schedule_finish`. Give a schedule back
// with `unspool_schedule_free`. Errors: `UNSPOOL_INVALID`.
int unspool_schedule_new(const char *kind,
                         int64_t steps,
                         int64_t slots,
                         struct unspool_schedule **schedule);

// Writes the next action to `action`. After `UNSPOOL_END` it is `UNSPOOL_END` again.
int unspool_schedule_next(struct unspool_schedule *schedule, struct unspool_action *action);

// Tells a schedule of an unknown number of steps that the forward pass has ended: the working
// state is state `steps`.
//
// Errors: `UNSPOOL_INVALID` when the number was known, or cannot be that one.
int unspool_schedule_finish(struct unspool_schedule *schedule, int64_t steps);

// Gives a schedule back.
void unspool_schedule_free(struct unspool_schedule *schedule);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNSPOOL_H */

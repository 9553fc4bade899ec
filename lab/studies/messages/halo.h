/* Box: the part of a grid of up to four dimensions that a rank has, with layers of its neighbours'
 * values around it, and what brings these up to date. A dimension without layers is not divided.
 */
#ifndef HALO_H
#define HALO_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS = 4 };

typedef struct {
    int rank, size;
    int ranks[DIMS], place[DIMS];  /* of the grid of ranks, and of this one in it */
    int lower[DIMS], upper[DIMS];  /* neighbours; MPI_PROC_NULL where there is none */
    int inner[DIMS], width[DIMS];  /* values of this rank; layers on either side */
    int full[DIMS];                /* both together */
    int global[DIMS];              /* values of all ranks */
} Box;

/* Command line: sizes of a rank, how often to step, and whether data are general (`random`). */
typedef struct {
    int extent[DIMS];
    int steps, random;
} Setup;

static inline void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static inline void *room(size_t bytes)
{
    void *memory = calloc(bytes ? bytes : 1, 1);
    if (!memory)
        fail("no memory is left: give smaller sizes");
    return memory;
}

static inline Setup setup_of(int argc, char **argv)
{
    Setup setup = {{1, 1, 1, 1}, 0, 0};
    if (argc != 4)
        fail("usage: PROGRAM 64x64x16 STEPS own|random");
    int *e = setup.extent;
    int read = sscanf(argv[1], "%dx%dx%dx%d", &e[0], &e[1], &e[2], &e[3]);
    setup.steps = atoi(argv[2]);
    setup.random = !strcmp(argv[3], "random");
    for (int d = 0; d < DIMS; d++)
        if (e[d] < 1)
            read = 0;
    if (read < 3 || setup.steps < 1)
        fail("sizes and steps are whole numbers from 1, as 64x64x16");
    return setup;
}

/* A number in [0, 1) that belongs to a place of the whole grid, whoever computes it
 * (SplitMix64). */
static inline double drawn(uint64_t seed, uint64_t place)
{
    uint64_t z = seed * 0xd1342543de82ef95u + (place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Ranks are a grid over the first `divided` dimensions, or a chain along `chain` if it is not
 * -1. */
static inline Box box_of(Setup setup, int width, int divided, int chain, int periodic)
{
    Box box = {0};
    MPI_Comm_rank(MPI_COMM_WORLD, &box.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &box.size);
    for (int d = 0; d < DIMS; d++)
        box.ranks[d] = chain < 0 && d < divided ? 0 : d == chain ? box.size : 1;
    MPI_Dims_create(box.size, DIMS, box.ranks);
    int stride = 1;
    for (int d = 0; d < DIMS; d++) {
        int count = box.ranks[d], at = box.place[d] = box.rank / stride % count;
        int is_cut = chain < 0 ? d < divided : d == chain;
        box.inner[d] = setup.extent[d];
        box.width[d] = is_cut ? width : 0;
        box.full[d] = box.inner[d] + 2 * box.width[d];
        box.global[d] = box.inner[d] * count;
        int down = at ? box.rank - stride : box.rank + stride * (count - 1);
        int up = at < count - 1 ? box.rank + stride : box.rank - stride * (count - 1);
        box.lower[d] = at || periodic ? down : MPI_PROC_NULL;
        box.upper[d] = at < count - 1 || periodic ? up : MPI_PROC_NULL;
        stride *= count;
    }
    return box;
}

static inline size_t values_of(const Box *box)
{
    size_t count = 1;
    for (int d = 0; d < DIMS; d++)
        count *= (size_t)box->full[d];
    return count;
}

/* The distance in memory between neighbours along a dimension; the first is the fastest. */
static inline size_t stride_of(const Box *box, int dim)
{
    size_t stride = 1;
    for (int d = 0; d < dim; d++)
        stride *= (size_t)box->full[d];
    return stride;
}

/* Calls for each place of this rank, in the order of memory. */
#define EACH_PLACE(box, i, j, k)                                                   \
    for (int k = (box)->width[2]; k < (box)->width[2] + (box)->inner[2]; k++)      \
        for (int j = (box)->width[1]; j < (box)->width[1] + (box)->inner[1]; j++)  \
            for (int i = (box)->width[0]; i < (box)->width[0] + (box)->inner[0]; i++)

static inline size_t at(const Box *box, int i, int j, int k)
{
    return (size_t)i + (size_t)box->full[0] * ((size_t)j + (size_t)box->full[1] * (size_t)k);
}

/* The place in the grid of all ranks. */
static inline int global(const Box *box, int dim, int local)
{
    return box->place[dim] * box->inner[dim] + local - box->width[dim];
}

/* Values on a box: `numbers` of a type of MPI at each place. */
typedef struct {
    void *data;
    MPI_Datatype type;
    int numbers;
    size_t item; /* bytes of a place */
} Field;

static inline Field field_of(void *data, MPI_Datatype type, int numbers)
{
    int bytes;
    MPI_Type_size(type, &bytes);
    Field field = {data, type, numbers, (size_t)bytes * (size_t)numbers};
    return field;
}

/* A part of a box: from one place to another in each dimension, the latter not included. */
typedef struct {
    int from[DIMS], to[DIMS];
} Region;

/* Layers `from` to `from + count` of a dimension. With corners they have the layers of neighbours
 * along the dimensions before, where there are such. */
static inline Region region_of(const Box *box, int dim, int from, int count, int corners)
{
    Region region;
    for (int d = 0; d < DIMS; d++) {
        int width = box->width[d], end = width + box->inner[d], is_wide = corners && d < dim;
        region.from[d] = is_wide && box->lower[d] != MPI_PROC_NULL ? 0 : width;
        region.to[d] = is_wide && box->upper[d] != MPI_PROC_NULL ? box->full[d] : end;
    }
    region.from[dim] = from;
    region.to[dim] = from + count;
    return region;
}

static inline size_t bytes_of(Region region, size_t item)
{
    for (int d = 0; d < DIMS; d++)
        item *= (size_t)(region.to[d] - region.from[d]);
    return item;
}

/* Copies a region out of a field, or into it, row by row. */
static inline void copy(const Box *box, Field field, Region r, char *packed, int into)
{
    size_t row = (size_t)(r.to[0] - r.from[0]) * field.item;
    for (int l = r.from[3]; l < r.to[3]; l++)
        for (int k = r.from[2]; k < r.to[2]; k++)
            for (int j = r.from[1]; j < r.to[1]; j++, packed += row) {
                size_t here = (size_t)r.from[0] + stride_of(box, 1) * (size_t)j +
                              stride_of(box, 2) * (size_t)k + stride_of(box, 3) * (size_t)l;
                char *there = (char *)field.data + here * field.item;
                memcpy(into ? there : packed, into ? packed : there, row);
            }
}

/* Two neighbours' messages: receives are ready before anything is sent, as in HPCCG. A rank that is
 * its own neighbour copies. */
static inline void swap(const Box *box, Field field, int dim, char *const out[2],
                        char *const in[2], size_t bytes, int tag)
{
    int peers[2] = {box->lower[dim], box->upper[dim]};
    int count = (int)(bytes / field.item) * field.numbers;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (peers[0] == box->rank) {
        memcpy(in[0], out[1], bytes);
        memcpy(in[1], out[0], bytes);
        return;
    }
    /* What goes up has the even tag: on two ranks both neighbours are the same one. */
    for (int side = 0; side < 2; side++)
        MPI_Irecv(in[side], count, field.type, peers[side], tag + side, MPI_COMM_WORLD,
                  &requests[side]);
    for (int side = 0; side < 2; side++)
        MPI_Send(out[side], count, field.type, peers[side], tag + !side, MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* Brings the layers of neighbours up to date, one dimension after the other; corners come along
 * with those of the dimensions before. Messages have the tags from `tag` on, two a dimension. */
static inline void exchange(const Box *box, Field field, int tag, int corners)
{
    for (int dim = 0; dim < DIMS; dim++) {
        int width = box->width[dim], inner = box->inner[dim];
        if (!width)
            continue;
        int sent[2] = {width, inner}, got[2] = {0, width + inner};
        size_t bytes = bytes_of(region_of(box, dim, 0, width, corners), field.item);
        char *out[2] = {room(bytes), room(bytes)}, *in[2] = {room(bytes), room(bytes)};
        for (int side = 0; side < 2; side++)
            copy(box, field, region_of(box, dim, sent[side], width, corners), out[side], 0);
        swap(box, field, dim, out, in, bytes, tag + 2 * dim);
        for (int side = 0; side < 2; side++) {
            if ((side ? box->upper : box->lower)[dim] != MPI_PROC_NULL)
                copy(box, field, region_of(box, dim, got[side], width, corners), in[side], 1);
            free(out[side]);
            free(in[side]);
        }
    }
}

/* Prints a hash of what all ranks have computed (FNV-1a over 8 bytes at a time) and the time of the
 * slowest rank, in seconds. */
static inline void finish(const void *data, size_t bytes, double seconds)
{
    uint64_t hash = 0xcbf29ce484222325u, word, all = 0;
    for (size_t at = 0; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, (const char *)data + at, sizeof word);
        hash = (hash ^ word) * 0x100000001b3u;
    }
    int rank;
    double slowest;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    hash = (hash ^ (uint64_t)rank) * 0x9e3779b97f4a7c15u;
    MPI_Reduce(&hash, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("result %016llx seconds %.6f\n", (unsigned long long)all, slowest);
}

#endif

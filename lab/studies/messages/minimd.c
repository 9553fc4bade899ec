/* Molecular dynamics as miniMD has it: Lennard-Jones with a cutoff, a periodic box of cells that
 * ranks share, positions of atoms near a border sent in each step, and new lists of them every
 * twentieth. Own data: a lattice that melts from drawn velocities; `random`: atoms begin away
 * from it as well.
 */
#include <math.h>

#include "halo.h"

enum { NEW_LISTS = 20, SWAPS = 6, POSITIONS = 20, MOVES = 40, BORDERS = 60, NEIGHBOURS = 160 };

static const double CUTOFF = 2.5, REACH = 2.8, DENSITY = 0.8442, STEP = 0.005, HEAT = 1.44;

/* Atoms of a rank and, after them, copies of those of its neighbours; what each swap sends and
 * gets. */
typedef struct {
    Box box;
    double length[3], low[3], high[3]; /* of the whole box; of this rank's part */
    int own, all, most;
    double *x, *v, *f;
    int *lists[SWAPS], sent[SWAPS], first[SWAPS], got[SWAPS];
    int *near, *counts;
} Atoms;

static double *grow(double *values, size_t count)
{
    double *more = realloc(values, count * sizeof *values);
    if (!more)
        fail("no memory is left: give smaller sizes");
    return more;
}

static void make_room(Atoms *a, int count)
{
    if (count <= a->most)
        return;
    a->most = count + count / 2;
    a->x = grow(a->x, 3 * (size_t)a->most);
    a->v = grow(a->v, 3 * (size_t)a->most);
    a->f = grow(a->f, 3 * (size_t)a->most);
}

/* The rank on the other side of a swap's border: swaps 2d and 2d + 1 are those of dimension d. */
static int peer(const Atoms *a, int swap, int is_receiver)
{
    int goes_down = swap % 2 == 0;
    return goes_down != is_receiver ? a->box.lower[swap / 2] : a->box.upper[swap / 2];
}

/* Sends so many numbers and receives others, by way of their count; returns what came. */
static double *trade(const Atoms *a, int swap, double *out, int count, int *got, int tag)
{
    int to = peer(a, swap, 0), from = peer(a, swap, 1);
    if (to == a->box.rank) {
        double *in = room((size_t)count * sizeof *in);
        memcpy(in, out, (size_t)count * sizeof *in);
        *got = count;
        return in;
    }
    MPI_Sendrecv(&count, 1, MPI_INT, to, tag + swap, got, 1, MPI_INT, from, tag + swap,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double *in = room((size_t)*got * sizeof *in);
    MPI_Sendrecv(out, count, MPI_DOUBLE, to, tag + 10 + swap, in, *got, MPI_DOUBLE, from,
                 tag + 10 + swap, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return in;
}

/* Brings atoms that have left to the rank that they are in now, a dimension at a time. */
static void move_atoms(Atoms *a)
{
    for (int swap = 0; swap < SWAPS; swap++) {
        int d = swap / 2, goes_down = swap % 2 == 0, count = 0, got;
        double *out = room((size_t)a->own * 6 * sizeof *out);
        for (int n = 0; n < a->own;) {
            double *x = a->x + 3 * n, *v = a->v + 3 * n;
            if (!(goes_down ? x[d] < a->low[d] : x[d] >= a->high[d])) {
                n++;
                continue;
            }
            x[d] += x[d] < 0 ? a->length[d] : x[d] >= a->length[d] ? -a->length[d] : 0;
            memcpy(out + count, x, 3 * sizeof *x);
            memcpy(out + count + 3, v, 3 * sizeof *v);
            count += 6;
            a->own--;
            memcpy(x, a->x + 3 * a->own, 3 * sizeof *x);
            memcpy(v, a->v + 3 * a->own, 3 * sizeof *v);
        }
        double *in = trade(a, swap, out, count, &got, MOVES);
        make_room(a, a->own + got / 6);
        for (int n = 0; n < got; n += 6, a->own++) {
            memcpy(a->x + 3 * a->own, in + n, 3 * sizeof *in);
            memcpy(a->v + 3 * a->own, in + n + 3, 3 * sizeof *in);
        }
        free(out);
        free(in);
    }
}

/* Copies the positions of a swap's list, as its receiver sees them across the border of the box. */
static void pack(const Atoms *a, int swap, double *out)
{
    int d = swap / 2, goes_down = swap % 2 == 0, last = a->box.ranks[d] - 1;
    int crosses = a->box.place[d] == (goes_down ? 0 : last);
    for (int n = 0; n < a->sent[swap]; n++) {
        memcpy(out + 3 * n, a->x + 3 * a->lists[swap][n], 3 * sizeof *out);
        if (crosses)
            out[3 * n + d] += goes_down ? a->length[d] : -a->length[d];
    }
}

/* Finds the atoms near each border, and makes copies of those of the neighbours. */
static void find_borders(Atoms *a)
{
    a->all = a->own;
    for (int swap = 0; swap < SWAPS; swap++) {
        /* The second swap of a dimension has the same atoms to choose from as the first. */
        int d = swap / 2, before = swap % 2 ? a->first[swap - 1] : a->all, got;
        free(a->lists[swap]);
        a->lists[swap] = room((size_t)before * sizeof(int));
        a->sent[swap] = 0;
        for (int n = 0; n < before; n++) {
            double x = a->x[3 * n + d];
            if (swap % 2 == 0 ? x < a->low[d] + REACH : x >= a->high[d] - REACH)
                a->lists[swap][a->sent[swap]++] = n;
        }
        double *out = room((size_t)a->sent[swap] * 3 * sizeof *out);
        pack(a, swap, out);
        double *in = trade(a, swap, out, 3 * a->sent[swap], &got, BORDERS);
        a->first[swap] = a->all;
        a->got[swap] = got / 3;
        make_room(a, a->all + got / 3);
        memcpy(a->x + 3 * a->all, in, (size_t)got * sizeof *in);
        a->all += got / 3;
        free(out);
        free(in);
    }
}

/* Brings the copies up to date. */
static void send_positions(Atoms *a)
{
    for (int swap = 0; swap < SWAPS; swap++) {
        int to = peer(a, swap, 0), from = peer(a, swap, 1);
        double *out = room((size_t)a->sent[swap] * 3 * sizeof *out);
        double *in = a->x + 3 * a->first[swap];
        pack(a, swap, out);
        if (to == a->box.rank)
            memcpy(in, out, (size_t)a->sent[swap] * 3 * sizeof *out);
        else
            MPI_Sendrecv(out, 3 * a->sent[swap], MPI_DOUBLE, to, POSITIONS + swap, in,
                         3 * a->got[swap], MPI_DOUBLE, from, POSITIONS + swap, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        free(out);
    }
}

static double distance(const double *a, const double *b)
{
    double x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
    return x * x + y * y + z * z;
}

/* Lists for each atom those within reach, by way of cells as wide as that. */
static void find_neighbours(Atoms *a)
{
    int cells[3];
    for (int d = 0; d < 3; d++)
        cells[d] = (int)((a->high[d] - a->low[d]) / REACH) + 4;
    size_t count = (size_t)cells[0] * (size_t)cells[1] * (size_t)cells[2];
    int *head = room(count * sizeof *head), *next = room((size_t)a->all * sizeof *next);
    int (*cell)[3] = room((size_t)a->all * sizeof *cell);
    for (int n = 0; n < a->all; n++) {
        for (int d = 0; d < 3; d++)
            cell[n][d] = (int)floor((a->x[3 * n + d] - a->low[d]) / REACH) + 2;
        size_t c = (size_t)cell[n][0] + (size_t)cells[0] * ((size_t)cell[n][1] +
                   (size_t)cells[1] * (size_t)cell[n][2]);
        next[n] = head[c];
        head[c] = n + 1;
    }
    free(a->near);
    free(a->counts);
    a->near = room((size_t)a->own * NEIGHBOURS * sizeof(int));
    a->counts = room((size_t)a->own * sizeof(int));
    for (int n = 0; n < a->own; n++)
        for (int o = 0; o < 27; o++) {
            size_t c = (size_t)(cell[n][0] + o % 3 - 1) + (size_t)cells[0] *
                       ((size_t)(cell[n][1] + o / 3 % 3 - 1) + (size_t)cells[1] *
                       (size_t)(cell[n][2] + o / 9 - 1));
            for (int m = head[c]; m; m = next[m - 1])
                if (m - 1 != n && distance(a->x + 3 * n, a->x + 3 * (m - 1)) < REACH * REACH) {
                    if (a->counts[n] == NEIGHBOURS)
                        fail("an atom has too many neighbours: the step is too long");
                    a->near[n * NEIGHBOURS + a->counts[n]++] = m - 1;
                }
        }
    free(head);
    free(next);
    free(cell);
}

static void find_forces(Atoms *a)
{
    for (int n = 0; n < a->own; n++) {
        double f[3] = {0, 0, 0}, *x = a->x + 3 * n;
        for (int m = 0; m < a->counts[n]; m++) {
            double *y = a->x + 3 * a->near[n * NEIGHBOURS + m], square = distance(x, y);
            if (square >= CUTOFF * CUTOFF)
                continue;
            double i2 = 1 / square, i6 = i2 * i2 * i2, force = 48 * i6 * (i6 - 0.5) * i2;
            for (int d = 0; d < 3; d++)
                f[d] += force * (x[d] - y[d]);
        }
        memcpy(a->f + 3 * n, f, sizeof f);
    }
}

static void fill(Atoms *a, Setup setup)
{
    static const double BASIS[4][3] = {{0, 0, 0}, {0.5, 0.5, 0}, {0.5, 0, 0.5}, {0, 0.5, 0.5}};
    double side = cbrt(4 / DENSITY);
    int *e = a->box.inner;
    for (int d = 0; d < 3; d++) {
        a->length[d] = side * a->box.global[d];
        a->low[d] = side * e[d] * a->box.place[d];
        a->high[d] = side * e[d] * (a->box.place[d] + 1);
        if (side * e[d] < REACH)
            fail("a rank needs two cells along each dimension");
    }
    make_room(a, 4 * e[0] * e[1] * e[2]);
    for (int n = 0; n < 4 * e[0] * e[1] * e[2]; n++, a->own++) {
        int cell[3] = {n / 4 % e[0], n / 4 / e[0] % e[1], n / 4 / e[0] / e[1]};
        for (int d = 0; d < 3; d++) {
            uint64_t place = ((uint64_t)a->box.rank << 40) + (uint64_t)(3 * n + d);
            double away = setup.random ? 0.1 * (drawn(21, place) - 0.5) : 0;
            a->x[3 * n + d] = a->low[d] + side * (cell[d] + 0.25 + BASIS[n % 4][d]) + away;
            a->v[3 * n + d] = sqrt(12 * HEAT) * (drawn(22, place) - 0.5);
        }
    }
}

/* One step of velocity Verlet; forces are those of the positions before and after it. */
static void step(Atoms *a, int number)
{
    for (int n = 0; n < 3 * a->own; n++) {
        a->v[n] += 0.5 * STEP * a->f[n];
        a->x[n] += STEP * a->v[n];
    }
    if (number % NEW_LISTS == 0) {
        move_atoms(a);
        find_borders(a);
        find_neighbours(a);
    } else {
        send_positions(a);
    }
    find_forces(a);
    for (int n = 0; n < 3 * a->own; n++)
        a->v[n] += 0.5 * STEP * a->f[n];
}

static void tell_energy(const Atoms *a)
{
    double mine[2] = {0, a->own}, all[2];
    for (int n = 0; n < 3 * a->own; n++)
        mine[0] += 0.5 * a->v[n] * a->v[n];
    MPI_Reduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (a->box.rank == 0)
        printf("%.0f atoms, temperature %.4f\n", all[1], 2.0 / 3.0 * all[0] / all[1]);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    Setup setup = setup_of(argc, argv);
    Atoms atoms = {.box = box_of(setup, 1, 3, -1, 1)};
    fill(&atoms, setup);
    tell_energy(&atoms);
    move_atoms(&atoms);
    find_borders(&atoms);
    find_neighbours(&atoms);
    find_forces(&atoms);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int n = 1; n <= setup.steps; n++)
        step(&atoms, n);
    double seconds = MPI_Wtime() - begin;
    tell_energy(&atoms);
    finish(atoms.x, (size_t)atoms.own * 3 * sizeof(double), seconds);
    free(atoms.x);
    free(atoms.v);
    free(atoms.f);
    free(atoms.near);
    free(atoms.counts);
    for (int swap = 0; swap < SWAPS; swap++)
        free(atoms.lists[swap]);
    MPI_Finalize();
    return 0;
}

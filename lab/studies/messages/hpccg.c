/* HPCCG's problem: a chain of ranks, 27 on the diagonal, -1 for each neighbour, and a right-hand
 * side for which the solution is one everywhere; or `random`, one drawn for each place.
 */
#include "cg.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    Setup setup = setup_of(argc, argv);
    Box box = box_of(setup, 1, 0, 2, 0);
    double *rows = room(values_of(&box) * ROW * 8);
    EACH_PLACE(&box, i, j, k)
    {
        double *row = rows + at(&box, i, j, k) * ROW;
        int neighbours = 0;
        for (int n = 0; n < 27; n++) {
            int s[3];
            steps_of(n, s);
            int where[3] = {global(&box, 0, i) + s[0], global(&box, 1, j) + s[1],
                            global(&box, 2, k) + s[2]};
            if (n != MIDDLE && is_in_grid(&box, where)) {
                row[n] = -1;
                neighbours++;
            }
        }
        row[MIDDLE] = 27;
        uint64_t place = (uint64_t)global(&box, 0, i) +
                         (uint64_t)box.global[0] *
                             ((uint64_t)global(&box, 1, j) +
                              (uint64_t)box.global[1] * (uint64_t)global(&box, 2, k));
        row[RIGHT] = setup.random ? drawn(1, place) : 27.0 - neighbours;
    }
    solve(&box, rows, setup.steps);
    free(rows);
    MPI_Finalize();
    return 0;
}

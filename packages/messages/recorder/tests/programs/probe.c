/* Prints how many of the functions that its arguments name `dlsym` finds, with a sum of which, and
   whether two are there as weak symbols. A program, or (with LATE) a library for `late.c`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

#pragma weak MPI_Send_c
extern int MPI_Send_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
#pragma weak MPI_Comm_idup_with_info
extern int MPI_Comm_idup_with_info(MPI_Comm, MPI_Info, MPI_Comm *, MPI_Request *);

int report(int count, char **names) {
    int found = 0;
    long sum = 0;
    for (int i = 0; i < count; i++)
        if (dlsym(RTLD_DEFAULT, names[i]))
            found++, sum += (long)i * i;
    int (*volatile send)(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm) = MPI_Send_c;
    int (*volatile dup)(MPI_Comm, MPI_Info, MPI_Comm *, MPI_Request *) = MPI_Comm_idup_with_info;
    printf("weak: %d %d, found: %d, sum: %ld\n", send != NULL, dup != NULL, found, sum);
    fflush(stdout);
    MPI_Init(NULL, NULL);
    char text[] = "once";
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Send(text, 4, MPI_CHAR, 1, 5, MPI_COMM_WORLD);
    else
        MPI_Recv(text, 4, MPI_CHAR, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}

#ifndef LATE
int main(int count, char **words) { return report(count - 1, words + 1); }
#endif

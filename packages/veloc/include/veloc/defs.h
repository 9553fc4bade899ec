/* The numbers of VELOC's interface. */

#ifndef VELOC_DEFS_H
#define VELOC_DEFS_H

#define VELOC_SUCCESS (0)
#define VELOC_FAILURE (-1)

/* Room for a path in VELOC_Route_file. */
#define VELOC_MAX_NAME (1024)

/* What a selection of regions means: all, those that are named, all but those. */
#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)
#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1)
#define VELOC_RECOVER_REST (2)

#define VELOC_OBSERVE_CKPT_END (0)

#endif /* VELOC_DEFS_H */

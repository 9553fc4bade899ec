!> The Fortran interface of Unspool, on top of the C interface (unspool.h says what every call does).
!>
!> Compile this file with your program: module files of one compiler are of no use to another.
!> Needs Fortran 2018 (gfortran 9, ifx, nvfortran 23 or later).
!>
!> Every procedure takes `stat` and `errmsg` as `allocate` does: without `stat` an error ends the
!> program with its message. Arrays are of any rank, contiguous, and have the `target` attribute.
module unspool
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64
  implicit none
  private

  public :: unspool_options, unspool_spool, unspool_array, unspool_schedule, unspool_action, array
  public :: unspool_parts, unspool_checkpointer, unspool_mpi_ranks, unspool_mpi_ranks_free

  !> The codes of `unspool_status`.
  integer, parameter, public :: unspool_ok = 0, unspool_invalid = 1, unspool_duplicate = 2, &
    unspool_unknown = 3, unspool_discarded = 4, unspool_not_yet_saved = 5, unspool_too_large = 6, &
    unspool_full = 7, unspool_io = 8, unspool_corrupt = 9, unspool_lost = 10, unspool_timeout = 11, &
    unspool_interrupted = 12, unspool_read_only = 13, unspool_closed = 14, unspool_forked = 15, &
    unspool_device = 16, unspool_wrong_device = 17, unspool_no_device = 18, &
    unspool_bound_violated = 19, unspool_internal = 20

  !> The kinds of actions of a schedule.
  integer, parameter, public :: unspool_forward = 0, unspool_save_action = 1, &
    unspool_restore_action = 2, unspool_reverse = 3, unspool_discard_action = 4, unspool_end = 5

  integer(c_int), parameter :: abi = 2
  integer, parameter :: most_dimensions = 15

  !> What a spool is opened with: see `unspool_options_set`.
  type :: unspool_options
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: set => options_set
    procedure :: free => options_free
  end type

  !> One history of checkpoints. It is not closed by itself.
  type :: unspool_spool
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => spool_open
    procedure :: save => spool_save
    procedure :: restore => spool_restore
    procedure :: expect => spool_expect
    procedure :: discard => spool_discard
    procedure :: flush => spool_flush
    procedure :: versions => spool_versions
    procedure :: contains => spool_contains
    procedure :: stat => spool_stat
    procedure :: close => spool_close
  end type

  !> An array of the caller's, with its name; made by `array`.
  type :: unspool_array
    private
    character(kind=c_char, len=:), allocatable :: name
    type(c_ptr) :: data = c_null_ptr
    integer(c_int) :: dtype = 0
    integer(c_int64_t), allocatable :: extents(:)
  end type

  !> What comes next; `from` and `to` are steps.
  type, bind(c) :: unspool_action
    integer(c_int) :: kind
    integer(c_int64_t) :: from
    integer(c_int64_t) :: to
  end type

  !> A schedule of an adjoint: see `unspool_schedule_new`.
  type :: unspool_schedule
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: make => schedule_make
    procedure :: next => schedule_next
    procedure :: finish => schedule_finish
    procedure :: free => schedule_free
  end type

  !> One rank's hold on the folder of a run: see `unspool_checkpointer_open`.
  type :: unspool_checkpointer
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => checkpointer_open
    procedure :: due => checkpointer_due
    procedure :: save => checkpointer_save
    procedure :: step => checkpointer_step
    procedure :: latest => checkpointer_latest
    procedure :: restore => checkpointer_restore
    procedure :: values => checkpointer_values
    procedure :: notes => checkpointer_notes
    procedure :: stop => checkpointer_stop
    procedure :: stopping => checkpointer_stopping
    procedure :: flush => checkpointer_flush
    procedure :: close => checkpointer_close
  end type

  !> All parts of a checkpoint, for a program that goes on with another number of ranks: see
  !> `unspool_parts_find`.
  type :: unspool_parts
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: find => parts_find
    procedure :: open => parts_open
    procedure :: values => parts_values
    procedure :: free => parts_free
  end type

  type, bind(c) :: c_array
    type(c_ptr) :: name
    type(c_ptr) :: data
    integer(c_int) :: dtype
    integer(c_int) :: ndim
    type(c_ptr) :: shape
  end type

  !> `array("u", u)`: the contiguous array `u` of any rank, under this name.
  interface array
    procedure array_int8, array_int16, array_int32, array_int64, array_real32, array_real64, &
      array_complex32, array_complex64, array_memory
  end interface

  interface
    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import
      type(c_ptr), value :: text
    end function
    !> The ranks of a communicator of MPI, such as `MPI_COMM_WORLD%MPI_VAL` of `mpi_f08`; null if MPI
    !> refuses it. Collective. They are in unspool_mpi.c beside this file: compile it with mpicc.
    type(c_ptr) function unspool_mpi_ranks(comm) bind(c, name="unspool_mpi_ranks")
      import
      integer(c_int), value :: comm
    end function
    !> Gives them back, when the checkpointer is closed. Collective.
    subroutine unspool_mpi_ranks_free(ranks) bind(c, name="unspool_mpi_ranks_free")
      import
      type(c_ptr), value :: ranks
    end subroutine
  end interface

  ! From here on as `make header` makes it of unspool.h.
  interface
    type(c_ptr) function c_last_error() bind(c, name="unspool_last_error")
      import
    end function
    integer(c_int) function c_abi() bind(c, name="unspool_abi")
      import
    end function
    integer(c_int) function c_options_new(options) bind(c, name="unspool_options_new")
      import
      type(c_ptr), intent(out) :: options
    end function
    integer(c_int) function c_options_set(options, name, value) bind(c, name="unspool_options_set")
      import
      type(c_ptr), value :: options
      character(kind=c_char), intent(in) :: name(*), value(*)
    end function
    subroutine c_options_free(options) bind(c, name="unspool_options_free")
      import
      type(c_ptr), value :: options
    end subroutine
    integer(c_int) function c_open(options, spool) bind(c, name="unspool_open")
      import
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: spool
    end function
    integer(c_int) function c_save(spool, version, arrays, count, stream) &
      bind(c, name="unspool_save")
      import
      type(c_ptr), value :: spool, stream
      integer(c_int64_t), value :: version
      type(c_array), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function c_restore(spool, version, arrays, count, stream) &
      bind(c, name="unspool_restore")
      import
      type(c_ptr), value :: spool, stream
      integer(c_int64_t), value :: version
      type(c_array), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
    end function
    integer(c_int) function c_expect(spool, versions, count, once) bind(c, name="unspool_expect")
      import
      type(c_ptr), value :: spool
      integer(c_int64_t), intent(in) :: versions(*)
      integer(c_size_t), value :: count
      integer(c_int), value :: once
    end function
    integer(c_int) function c_discard(spool, version) bind(c, name="unspool_discard")
      import
      type(c_ptr), value :: spool
      integer(c_int64_t), value :: version
    end function
    integer(c_int) function c_flush(spool, timeout) bind(c, name="unspool_flush")
      import
      type(c_ptr), value :: spool
      real(c_double), value :: timeout
    end function
    integer(c_int) function c_versions(spool, versions, room, count) &
      bind(c, name="unspool_versions")
      import
      type(c_ptr), value :: spool
      integer(c_int64_t), intent(out) :: versions(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(out) :: count
    end function
    integer(c_int) function c_contains(spool, version, answer) bind(c, name="unspool_contains")
      import
      type(c_ptr), value :: spool
      integer(c_int64_t), value :: version
      integer(c_int), intent(out) :: answer
    end function
    integer(c_int) function c_close(spool, timeout, discard_unflushed) bind(c, name="unspool_close")
      import
      type(c_ptr), value :: spool
      real(c_double), value :: timeout
      integer(c_int), value :: discard_unflushed
    end function
    subroutine c_free(spool) bind(c, name="unspool_free")
      import
      type(c_ptr), value :: spool
    end subroutine
    integer(c_int) function c_checkpointer_open(path, options, ranks, checkpointer) &
      bind(c, name="unspool_checkpointer_open")
      import
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: options, ranks
      type(c_ptr), intent(out) :: checkpointer
    end function
    integer(c_int) function c_checkpointer_due(checkpointer, step, answer) &
      bind(c, name="unspool_checkpointer_due")
      import
      type(c_ptr), value :: checkpointer
      integer(c_int64_t), value :: step
      integer(c_int), intent(out) :: answer
    end function
    integer(c_int) function c_checkpointer_save(checkpointer, step, arrays, count, values, stream) &
      bind(c, name="unspool_checkpointer_save")
      import
      type(c_ptr), value :: checkpointer, stream
      integer(c_int64_t), value :: step
      type(c_array), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
      character(kind=c_char), intent(in) :: values(*)
    end function
    integer(c_int) function c_checkpointer_latest(checkpointer, step) &
      bind(c, name="unspool_checkpointer_latest")
      import
      type(c_ptr), value :: checkpointer
      integer(c_int64_t), intent(inout) :: step
    end function
    integer(c_int) function c_checkpointer_restore(checkpointer, arrays, count, stream, step) &
      bind(c, name="unspool_checkpointer_restore")
      import
      type(c_ptr), value :: checkpointer, stream
      type(c_array), intent(in) :: arrays(*)
      integer(c_size_t), value :: count
      integer(c_int64_t), intent(inout) :: step
    end function
    integer(c_int) function c_checkpointer_values(checkpointer, step, values, room, length) &
      bind(c, name="unspool_checkpointer_values")
      import
      type(c_ptr), value :: checkpointer
      integer(c_int64_t), value :: step
      character(kind=c_char), intent(out) :: values(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(out) :: length
    end function
    integer(c_int) function c_checkpointer_notes(checkpointer, notes, room, length) &
      bind(c, name="unspool_checkpointer_notes")
      import
      type(c_ptr), value :: checkpointer
      character(kind=c_char), intent(out) :: notes(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(out) :: length
    end function
    subroutine c_checkpointer_stop(checkpointer) bind(c, name="unspool_checkpointer_stop")
      import
      type(c_ptr), value :: checkpointer
    end subroutine
    integer(c_int) function c_checkpointer_stopping(checkpointer) &
      bind(c, name="unspool_checkpointer_stopping")
      import
      type(c_ptr), value :: checkpointer
    end function
    integer(c_int) function c_checkpointer_flush(checkpointer, timeout) &
      bind(c, name="unspool_checkpointer_flush")
      import
      type(c_ptr), value :: checkpointer
      real(c_double), value :: timeout
    end function
    integer(c_int) function c_checkpointer_close(checkpointer, timeout) &
      bind(c, name="unspool_checkpointer_close")
      import
      type(c_ptr), value :: checkpointer
      real(c_double), value :: timeout
    end function
    subroutine c_checkpointer_free(checkpointer) bind(c, name="unspool_checkpointer_free")
      import
      type(c_ptr), value :: checkpointer
    end subroutine
    integer(c_int) function c_parts_find(path, step, ranks, parts) &
      bind(c, name="unspool_parts_find")
      import
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int64_t), intent(inout) :: step
      integer(c_int32_t), intent(out) :: ranks
      type(c_ptr), intent(out) :: parts
    end function
    integer(c_int) function c_parts_open(parts, rank, part) bind(c, name="unspool_parts_open")
      import
      type(c_ptr), value :: parts
      integer(c_int32_t), value :: rank
      type(c_ptr), intent(out) :: part
    end function
    integer(c_int) function c_parts_values(parts, rank, values, room, length) &
      bind(c, name="unspool_parts_values")
      import
      type(c_ptr), value :: parts
      integer(c_int32_t), value :: rank
      character(kind=c_char), intent(out) :: values(*)
      integer(c_size_t), value :: room
      integer(c_size_t), intent(out) :: length
    end function
    subroutine c_parts_free(parts) bind(c, name="unspool_parts_free")
      import
      type(c_ptr), value :: parts
    end subroutine
    integer(c_int) function c_stat(spool, name, value) bind(c, name="unspool_stat")
      import
      type(c_ptr), value :: spool
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(out) :: value
    end function
    integer(c_int) function c_schedule_new(kind, steps, slots, schedule) &
      bind(c, name="unspool_schedule_new")
      import
      character(kind=c_char), intent(in) :: kind(*)
      integer(c_int64_t), value :: steps, slots
      type(c_ptr), intent(out) :: schedule
    end function
    integer(c_int) function c_schedule_next(schedule, action) bind(c, name="unspool_schedule_next")
      import
      type(c_ptr), value :: schedule
      type(unspool_action), intent(out) :: action
    end function
    integer(c_int) function c_schedule_finish(schedule, steps) &
      bind(c, name="unspool_schedule_finish")
      import
      type(c_ptr), value :: schedule
      integer(c_int64_t), value :: steps
    end function
    subroutine c_schedule_free(schedule) bind(c, name="unspool_schedule_free")
      import
      type(c_ptr), value :: schedule
    end subroutine
  end interface
  ! Until here.

contains

  subroutine options_set(self, name, value, stat, errmsg)
    class(unspool_options), intent(inout) :: self
    character(*), intent(in) :: name, value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: code
    if (c_abi() /= abi) then
      error stop "libunspool has another interface than the module unspool: compile again."
    end if
    code = unspool_ok
    if (.not. c_associated(self%handle)) code = c_options_new(self%handle)
    if (code == unspool_ok) then
      code = c_options_set(self%handle, trim(name)//c_null_char, trim(value)//c_null_char)
    end if
    call report(code, stat, errmsg)
  end subroutine

  subroutine options_free(self)
    class(unspool_options), intent(inout) :: self
    call c_options_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  subroutine spool_open(self, options, stat, errmsg)
    class(unspool_spool), intent(inout) :: self
    class(unspool_options), intent(in) :: options
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call report(c_open(options%handle, self%handle), stat, errmsg)
  end subroutine

  subroutine spool_save(self, version, arrays, stream, stat, errmsg)
    class(unspool_spool), intent(in) :: self
    integer(int64), intent(in) :: version
    type(unspool_array), intent(in), target :: arrays(:)
    type(c_ptr), intent(in), optional :: stream
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_array) :: all(size(arrays))
    type(c_ptr) :: on
    on = c_null_ptr
    if (present(stream)) on = stream
    call lend(arrays, all)
    call report(c_save(self%handle, version, all, size(all, kind=c_size_t), on), stat, errmsg)
  end subroutine

  subroutine spool_restore(self, version, arrays, stream, stat, errmsg)
    class(unspool_spool), intent(in) :: self
    integer(int64), intent(in) :: version
    type(unspool_array), intent(in), target :: arrays(:)
    type(c_ptr), intent(in), optional :: stream
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_array) :: all(size(arrays))
    type(c_ptr) :: on
    on = c_null_ptr
    if (present(stream)) on = stream
    call lend(arrays, all)
    call report(c_restore(self%handle, version, all, size(all, kind=c_size_t), on), stat, errmsg)
  end subroutine

  subroutine spool_expect(self, versions, once, stat, errmsg)
    class(unspool_spool), intent(in) :: self
    integer(int64), intent(in) :: versions(:)
    logical, intent(in), optional :: once
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: goes
    goes = 0_c_int
    if (present(once)) goes = merge(1_c_int, 0_c_int, once)
    call report(c_expect(self%handle, versions, size(versions, kind=c_size_t), goes), stat, errmsg)
  end subroutine

  subroutine spool_discard(self, version, stat, errmsg)
    class(unspool_spool), intent(in) :: self
    integer(int64), intent(in) :: version
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call report(c_discard(self%handle, version), stat, errmsg)
  end subroutine

  !> `timeout` in seconds; without it as long as the spool was told.
  subroutine spool_flush(self, timeout, stat, errmsg)
    class(unspool_spool), intent(in) :: self
    real(real64), intent(in), optional :: timeout
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    real(c_double) :: longest
    longest = 0
    if (present(timeout)) longest = timeout
    call report(c_flush(self%handle, longest), stat, errmsg)
  end subroutine

  !> The versions that can be restored, in ascending order.
  subroutine spool_versions(self, versions, stat, errmsg)
    class(unspool_spool), intent(in) :: self
    integer(int64), allocatable, intent(out) :: versions(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_size_t) :: count
    integer(c_int) :: code
    count = 0
    do
      if (allocated(versions)) deallocate (versions)
      allocate (versions(count))
      code = c_versions(self%handle, versions, size(versions, kind=c_size_t), count)
      if (code /= unspool_ok .or. count <= size(versions, kind=c_size_t)) exit
    end do
    if (code == unspool_ok) versions = versions(:count)
    call report(code, stat, errmsg)
  end subroutine

  logical function spool_contains(self, version) result(answer)
    class(unspool_spool), intent(in) :: self
    integer(int64), intent(in) :: version
    integer(c_int) :: found
    call report(c_contains(self%handle, version, found))
    answer = found /= 0
  end function

  !> A figure of what the spool has done: see `unspool_stat`.
  real(real64) function spool_stat(self, name) result(value)
    class(unspool_spool), intent(in) :: self
    character(*), intent(in) :: name
    call report(c_stat(self%handle, trim(name)//c_null_char, value))
  end function

  !> Closes the spool and gives it back. After an error it is open as before.
  subroutine spool_close(self, timeout, discard_unflushed, stat, errmsg)
    class(unspool_spool), intent(inout) :: self
    real(real64), intent(in), optional :: timeout
    logical, intent(in), optional :: discard_unflushed
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    real(c_double) :: longest
    integer(c_int) :: discards, code
    longest = 0
    if (present(timeout)) longest = timeout
    discards = 0
    if (present(discard_unflushed)) discards = merge(1, 0, discard_unflushed)
    code = c_close(self%handle, longest, discards)
    call report(code, stat, errmsg)
    if (code == unspool_ok .or. discards == 1) then
      call c_free(self%handle)
      self%handle = c_null_ptr
    end if
  end subroutine

  subroutine schedule_make(self, kind, steps, slots, stat, errmsg)
    class(unspool_schedule), intent(inout) :: self
    character(*), intent(in) :: kind
    integer(int64), intent(in) :: steps, slots
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call schedule_free(self)
    call report(c_schedule_new(trim(kind)//c_null_char, steps, slots, self%handle), stat, errmsg)
  end subroutine

  type(unspool_action) function schedule_next(self) result(action)
    class(unspool_schedule), intent(inout) :: self
    call report(c_schedule_next(self%handle, action))
  end function

  subroutine schedule_finish(self, steps, stat, errmsg)
    class(unspool_schedule), intent(inout) :: self
    integer(int64), intent(in) :: steps
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call report(c_schedule_finish(self%handle, steps), stat, errmsg)
  end subroutine

  subroutine schedule_free(self)
    class(unspool_schedule), intent(inout) :: self
    call c_schedule_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  !> `ranks` of a job of several: see `unspool_mpi_ranks`.
  subroutine checkpointer_open(self, path, options, ranks, stat, errmsg)
    class(unspool_checkpointer), intent(inout) :: self
    character(*), intent(in) :: path
    class(unspool_options), intent(in) :: options
    type(c_ptr), intent(in), optional :: ranks
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: all
    integer(c_int) :: code
    all = c_null_ptr
    if (present(ranks)) all = ranks
    code = c_checkpointer_open(trim(path)//c_null_char, options%handle, all, self%handle)
    call report(code, stat, errmsg)
  end subroutine

  logical function checkpointer_due(self, step) result(answer)
    class(unspool_checkpointer), intent(in) :: self
    integer(int64), intent(in) :: step
    integer(c_int) :: found
    call report(c_checkpointer_due(self%handle, step, found))
    answer = found /= 0
  end function

  !> `values` is a text of the program's own.
  subroutine checkpointer_save(self, step, arrays, values, stream, stat, errmsg)
    class(unspool_checkpointer), intent(in) :: self
    integer(int64), intent(in) :: step
    type(unspool_array), intent(in), target :: arrays(:)
    character(*), intent(in), optional :: values
    type(c_ptr), intent(in), optional :: stream
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_array) :: all(size(arrays))
    type(c_ptr) :: on
    character(:), allocatable :: text
    integer(c_int) :: code
    on = c_null_ptr
    if (present(stream)) on = stream
    text = ""
    if (present(values)) text = values
    call lend(arrays, all)
    text = text//c_null_char
    code = c_checkpointer_save(self%handle, step, all, size(all, kind=c_size_t), text, on)
    call report(code, stat, errmsg)
  end subroutine

  !> Saves if the checkpoint is due.
  subroutine checkpointer_step(self, step, arrays, values, stream, stat, errmsg)
    class(unspool_checkpointer), intent(in) :: self
    integer(int64), intent(in) :: step
    type(unspool_array), intent(in), target :: arrays(:)
    character(*), intent(in), optional :: values
    type(c_ptr), intent(in), optional :: stream
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: found, code
    found = 0
    code = c_checkpointer_due(self%handle, step, found)
    if (code == unspool_ok .and. found /= 0) then
      call checkpointer_save(self, step, arrays, values, stream, stat, errmsg)
    else
      call report(code, stat, errmsg)
    end if
  end subroutine

  !> The step of the newest checkpoint that counts; -1 when there is none.
  integer(int64) function checkpointer_latest(self) result(step)
    class(unspool_checkpointer), intent(in) :: self
    integer(c_int64_t) :: found
    call report(c_checkpointer_latest(self%handle, found))
    step = found
  end function

  !> Copies the newest checkpoint that counts into arrays; `step` is -1 when there is none.
  subroutine checkpointer_restore(self, arrays, step, stream, stat, errmsg)
    class(unspool_checkpointer), intent(in) :: self
    type(unspool_array), intent(in), target :: arrays(:)
    integer(int64), intent(out) :: step
    type(c_ptr), intent(in), optional :: stream
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_array) :: all(size(arrays))
    type(c_ptr) :: on
    integer(c_int) :: code
    on = c_null_ptr
    if (present(stream)) on = stream
    call lend(arrays, all)
    code = c_checkpointer_restore(self%handle, all, size(all, kind=c_size_t), on, step)
    call report(code, stat, errmsg)
  end subroutine

  !> The text that was saved with a step.
  function checkpointer_values(self, step) result(text)
    class(unspool_checkpointer), intent(in) :: self
    integer(int64), intent(in) :: step
    character(:), allocatable :: text
    integer(c_size_t) :: length
    length = 0
    do
      text = repeat(" ", length + 1)
      call report(c_checkpointer_values(self%handle, step, text, len(text, kind=c_size_t), length))
      if (length < len(text)) exit
    end do
    text = text(:length)
  end function

  !> What was found damaged, in sentences, one in a line.
  function checkpointer_notes(self) result(text)
    class(unspool_checkpointer), intent(in) :: self
    character(:), allocatable :: text
    integer(c_size_t) :: length
    length = 0
    do
      text = repeat(" ", length + 1)
      call report(c_checkpointer_notes(self%handle, text, len(text, kind=c_size_t), length))
      if (length < len(text)) exit
    end do
    text = text(:length)
  end function

  !> Asks the run to stop.
  subroutine checkpointer_stop(self)
    class(unspool_checkpointer), intent(in) :: self
    call c_checkpointer_stop(self%handle)
  end subroutine

  logical function checkpointer_stopping(self) result(answer)
    class(unspool_checkpointer), intent(in) :: self
    answer = c_checkpointer_stopping(self%handle) /= 0
  end function

  !> `timeout` in seconds; without it as long as the run was told.
  subroutine checkpointer_flush(self, timeout, stat, errmsg)
    class(unspool_checkpointer), intent(in) :: self
    real(real64), intent(in), optional :: timeout
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    real(c_double) :: longest
    longest = 0
    if (present(timeout)) longest = timeout
    call report(c_checkpointer_flush(self%handle, longest), stat, errmsg)
  end subroutine

  !> Closes it and gives it back. After an error it is open as before.
  subroutine checkpointer_close(self, timeout, stat, errmsg)
    class(unspool_checkpointer), intent(inout) :: self
    real(real64), intent(in), optional :: timeout
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    real(c_double) :: longest
    integer(c_int) :: code
    longest = 0
    if (present(timeout)) longest = timeout
    code = c_checkpointer_close(self%handle, longest)
    call report(code, stat, errmsg)
    if (code == unspool_ok) then
      call c_checkpointer_free(self%handle)
      self%handle = c_null_ptr
    end if
  end subroutine

  !> Those of the checkpoint of `step` in the folder of a run, or with -1 of the newest one, whose step
  !> is returned; `ranks` is the number of ranks that have saved one.
  subroutine parts_find(self, path, step, ranks, stat, errmsg)
    class(unspool_parts), intent(inout) :: self
    character(*), intent(in) :: path
    integer(int64), intent(inout) :: step
    integer, intent(out) :: ranks
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int32_t) :: found
    integer(c_int) :: code
    call parts_free(self)
    found = 0
    code = c_parts_find(trim(path)//c_null_char, step, found, self%handle)
    ranks = int(found)
    call report(code, stat, errmsg)
  end subroutine

  !> What a rank, from 0 on, has saved, as a spool for reading with the step as version.
  subroutine parts_open(self, rank, part, stat, errmsg)
    class(unspool_parts), intent(in) :: self
    integer, intent(in) :: rank
    class(unspool_spool), intent(inout) :: part
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call report(c_parts_open(self%handle, int(rank, c_int32_t), part%handle), stat, errmsg)
  end subroutine

  !> The text that a rank has saved.
  function parts_values(self, rank) result(text)
    class(unspool_parts), intent(in) :: self
    integer, intent(in) :: rank
    character(:), allocatable :: text
    integer(c_size_t) :: length
    length = 0
    do
      text = repeat(" ", length + 1)
      call report(c_parts_values(self%handle, int(rank, c_int32_t), text, &
                                 len(text, kind=c_size_t), length))
      if (length < len(text)) exit
    end do
    text = text(:length)
  end function

  subroutine parts_free(self)
    class(unspool_parts), intent(inout) :: self
    call c_parts_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  !> Describes arrays for the C interface, valid as long as `arrays` are.
  subroutine lend(arrays, all)
    type(unspool_array), intent(in), target :: arrays(:)
    type(c_array), intent(out) :: all(:)
    integer :: i
    do i = 1, size(arrays)
      all(i)%name = c_loc(arrays(i)%name)
      all(i)%data = arrays(i)%data
      all(i)%dtype = arrays(i)%dtype
      all(i)%ndim = size(arrays(i)%extents)
      all(i)%shape = c_null_ptr
      if (size(arrays(i)%extents) > 0) all(i)%shape = c_loc(arrays(i)%extents)
    end do
  end subroutine

  !> Hands a code to the caller, or ends the program with its message.
  subroutine report(code, stat, errmsg)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(:), allocatable :: text
    if (code /= unspool_ok .and. present(errmsg)) errmsg = last_error()
    if (present(stat)) then
      stat = code
    else if (code /= unspool_ok) then
      ! Not by `write`: the call may stand in one to the same unit.
      text = last_error()
      error stop text
    end if
  end subroutine

  function last_error() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: found(:)
    type(c_ptr) :: place
    integer :: i
    place = c_last_error()
    call c_f_pointer(place, found, [c_strlen(place)])
    allocate (character(size(found)) :: text)
    do i = 1, size(found)
      text(i:i) = found(i)
    end do
  end function

  !> The dimensions in the order of C, in which the last one changes fastest.
  type(unspool_array) function described(name, data, dtype, extents, is_dense) result(it)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: data
    integer(c_int), intent(in) :: dtype
    integer(c_int64_t), intent(in) :: extents(:)
    logical, intent(in) :: is_dense
    if (.not. is_dense) error stop "The array "//trim(name)//" is not contiguous: give a copy of it."
    it%name = trim(name)//c_null_char
    it%data = data
    it%dtype = dtype
    allocate (it%extents(size(extents)))
    it%extents(:) = extents(size(extents):1:-1)
  end function

  type(unspool_array) function array_int8(name, a) result(it)
    character(*), intent(in) :: name
    integer(int8), intent(in), target :: a(..)
    it = described(name, c_loc(a), 2_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  type(unspool_array) function array_int16(name, a) result(it)
    character(*), intent(in) :: name
    integer(int16), intent(in), target :: a(..)
    it = described(name, c_loc(a), 3_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  type(unspool_array) function array_int32(name, a) result(it)
    character(*), intent(in) :: name
    integer(int32), intent(in), target :: a(..)
    it = described(name, c_loc(a), 4_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  type(unspool_array) function array_int64(name, a) result(it)
    character(*), intent(in) :: name
    integer(int64), intent(in), target :: a(..)
    it = described(name, c_loc(a), 5_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  type(unspool_array) function array_real32(name, a) result(it)
    character(*), intent(in) :: name
    real(real32), intent(in), target :: a(..)
    it = described(name, c_loc(a), 18_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  type(unspool_array) function array_real64(name, a) result(it)
    character(*), intent(in) :: name
    real(real64), intent(in), target :: a(..)
    it = described(name, c_loc(a), 19_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  type(unspool_array) function array_complex32(name, a) result(it)
    character(*), intent(in) :: name
    complex(real32), intent(in), target :: a(..)
    it = described(name, c_loc(a), 25_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  type(unspool_array) function array_complex64(name, a) result(it)
    character(*), intent(in) :: name
    complex(real64), intent(in), target :: a(..)
    it = described(name, c_loc(a), 26_c_int, shape(a, c_int64_t), is_contiguous(a))
  end function

  !> Memory at an address, such as that of a GPU: `dtype` is a value of `unspool_dtype`, `extents`
  !> are in the order of Fortran.
  type(unspool_array) function array_memory(name, data, dtype, extents) result(it)
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: data
    integer(c_int), intent(in) :: dtype
    integer(c_int64_t), intent(in) :: extents(:)
    it = described(name, data, dtype, extents, .true.)
  end function

end module

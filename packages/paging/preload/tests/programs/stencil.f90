! A sweep over arrays that are allocated, printed where a program looks, and written to a file.
program stencil
  implicit none
  integer, parameter :: n = 64, layers = 256
  real(8), allocatable :: a(:,:,:), b(:,:,:)
  integer :: i, j, k, lap
  allocate(a(n, n, layers), b(n, n, layers))
  do k = 1, layers
    do j = 1, n
      do i = 1, n
        a(i, j, k) = 1d-3 * mod(i * 7 + j * 3 + k, 100)
      end do
    end do
  end do
  b = a
  do lap = 1, 4
    do k = 2, layers - 1
      b(2:n-1, 2:n-1, k) = 0.6d0 * a(2:n-1, 2:n-1, k) + 0.2d0 * (a(2:n-1, 2:n-1, k-1) + a(2:n-1, 2:n-1, k+1))
    end do
    a = b
    print *, lap, a(5, 6, 7), a(60, 50, 200)
  end do
  open(10, file='field.bin', form='unformatted', access='stream')
  write(10) a
  rewind(10)
  b = 0
  read(10) b
  close(10)
  print *, sum(abs(a - b)), sum(a)
end program

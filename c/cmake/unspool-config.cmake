# find_package(unspool) gives the targets unspool::unspool (the shared library) and unspool::static,
# and the variable unspool_FORTRAN_MODULE, a source file to compile with a program in Fortran.

get_filename_component(_unspool_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET unspool::unspool)
  add_library(unspool::unspool SHARED IMPORTED)
  set_target_properties(unspool::unspool PROPERTIES
    IMPORTED_LOCATION "${_unspool_prefix}/lib/libunspool.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_unspool_prefix}/include")
endif()

if(NOT TARGET unspool::static AND EXISTS "${_unspool_prefix}/lib/libunspool.a")
  add_library(unspool::static STATIC IMPORTED)
  set_target_properties(unspool::static PROPERTIES
    IMPORTED_LOCATION "${_unspool_prefix}/lib/libunspool.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_unspool_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()

set(unspool_FORTRAN_MODULE "${_unspool_prefix}/share/unspool/unspool.f90")
unset(_unspool_prefix)

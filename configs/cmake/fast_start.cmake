# distrun_fast_start(target): links a program so that it starts fast.
#
# Loading and relocating libstdc++ is most of a small program's start: measured 1.7 ms with it as a
# shared library, 1.0 ms with it inside.  The C library stays shared: name resolution loads its
# plug-ins at run time.
function(distrun_fast_start target)
  if(DISTRUN_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc
                      -Wl,-z,pack-relative-relocs)
endfunction()

# distrun_warnings: linked by every target of ours.  Warnings are errors.
add_library(distrun_warnings INTERFACE)
target_compile_options(distrun_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wconversion $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Werror -Werror=switch)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # At -O3, GCC 12 sees overlaps inside std::string that cannot be (its bug 105651).
  target_compile_options(distrun_warnings INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()

if(DISTRUN_SANITIZE)
  # Everywhere, so that no object of ours is left uninstrumented.
  add_compile_options(-fsanitize=${DISTRUN_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${DISTRUN_SANITIZE})
  if(DISTRUN_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A third of the compile time, for what ASan reports too (null), what x86 forgives (alignment: the
    # fuzz preset, by clang, looks for it where bytes are parsed) and casts that this code does not have.
    add_compile_options(-fno-sanitize=null,alignment,vptr)
  endif()
  if(DISTRUN_SANITIZE MATCHES "thread")
    add_compile_options(-Wno-error=tsan)  # GCC cannot see through atomic_thread_fence.
  endif()
endif()

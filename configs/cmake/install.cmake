# What is installed, in two components: `runtime` is the library that others link (distrun::runtime,
# by find_package(distrun) or pkg-config distrun-runtime), `launcher` the programs.
include(CMakePackageConfigHelpers)

set(distrun_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/distrun)
set(distrun_package_build ${PROJECT_BINARY_DIR}/package)
if(Gloo_FOUND)
  set(DISTRUN_HAS_GLOO ON)
  set(DISTRUN_PC_GLOO "-lgloo")
else()
  set(DISTRUN_HAS_GLOO OFF)
  set(DISTRUN_PC_GLOO "")
endif()

install(TARGETS distrun_worker EXPORT distrunTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT runtime)
# Apart from the others: whoever includes it has to have nlohmann_json.
install(FILES ${PROJECT_SOURCE_DIR}/runtime/worker/include/distrun/objects.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/distrun COMPONENT runtime)
install(EXPORT distrunTargets NAMESPACE distrun:: DESTINATION ${distrun_package_dir}
  COMPONENT runtime)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/configs/package/distrunConfig.cmake.in
  ${distrun_package_build}/distrunConfig.cmake
  INSTALL_DESTINATION ${distrun_package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${distrun_package_build}/distrunConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${distrun_package_build}/distrunConfig.cmake
  ${distrun_package_build}/distrunConfigVersion.cmake
  DESTINATION ${distrun_package_dir} COMPONENT runtime)

# From lib/pkgconfig, or lib/x86_64-linux-gnu/pkgconfig, up to the prefix.
string(REGEX REPLACE "[^/]+" ".." up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
set(DISTRUN_PC_PREFIX "\${pcfiledir}/${up}")
configure_file(${PROJECT_SOURCE_DIR}/configs/package/distrun-runtime.pc.in
  ${distrun_package_build}/distrun-runtime.pc @ONLY)
install(FILES ${distrun_package_build}/distrun-runtime.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)

foreach(program distrun distrund)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT launcher)
  endif()
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/docs/man/distrun.1 ${PROJECT_SOURCE_DIR}/docs/man/distrun-submit.1
  ${PROJECT_SOURCE_DIR}/docs/man/distrun-flight.1
  ${PROJECT_SOURCE_DIR}/docs/man/distrund.1
  DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT launcher)
install(FILES ${PROJECT_SOURCE_DIR}/configs/completions/distrun.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME distrun COMPONENT launcher)
install(FILES ${PROJECT_SOURCE_DIR}/configs/completions/_distrun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT launcher)
install(FILES ${PROJECT_SOURCE_DIR}/configs/completions/distrun.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT launcher)

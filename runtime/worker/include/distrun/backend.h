// Backends for process groups: which there are, and how to add one.
//
//   distrun::register_backend("mine", "/opt/mine/libmine.so");       // or its entry function
//   auto world = distrun::init_process_group("cpu:gloo,cuda:mine");
//
// A backend carries out the operations on one kind of device's memory; backend_abi.h is what it has
// to offer, in C.  "gloo" (memory of the CPU) is part of this library.  "nccl" (GPUs of NVIDIA) is
// a backend like anybody else's, libdistrun_nccl.so, loaded when it is first asked for: from the
// file that DISTRUN_NCCL_LIBRARY names, else where the dynamic linker looks, else where this
// library was installed.
#pragma once

#include <distrun/backend_abi.h>
#include <distrun/error.h>

#include <string>
#include <string_view>
#include <vector>

namespace distrun {

// `name`: letters, digits, '_' and '-'.  Throws DistArgumentError: another kind of name, or one
// that is taken.  A library is only loaded, and what is wrong with it found, when a group asks for
// it.
void register_backend(const std::string& name, drb_entry entry);
void register_backend(const std::string& name, const std::string& library);

std::vector<std::string> known_backends();

// Whether this build of the library has that backend, and this machine what it needs.
bool is_available(std::string_view backend);
// The same in words: versions, or what is missing.
std::string availability(std::string_view backend);

}  // namespace distrun

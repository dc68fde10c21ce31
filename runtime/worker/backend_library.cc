#include "runtime/worker/backend_library.h"

#include "runtime/worker/backend_config.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <mutex>
#include <variant>

namespace distrun {
namespace {

constexpr const char* kNccl = "nccl";

// Where it comes from, and, once somebody has asked, what came of it.
struct Registered {
  std::variant<drb_entry, std::vector<std::string>> from;  // files: the first that can be loaded
  std::unique_ptr<BackendLibrary> library;
  bool by_default = false;  // nobody registered it
};

std::vector<std::string> nccl_files() {
  std::vector<std::string> files;
  if (const char* file = std::getenv("DISTRUN_NCCL_LIBRARY"); file != nullptr && *file != '\0')
    return {file};
  files.emplace_back("libdistrun_nccl.so");
#ifdef DISTRUN_LIBRARY_DIR
  files.emplace_back(DISTRUN_LIBRARY_DIR "/libdistrun_nccl.so");
#endif
  return files;
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, Registered> by_name;
};
Registry& registry() {
  static auto* const the_registry = new Registry;  // groups may live until the process ends
  return *the_registry;
}

std::string list_of_names(const std::map<std::string, Registered>& by_name) {
  std::string names(kGloo);
  if (!by_name.contains(kNccl)) names.append(", ").append(kNccl);
  for (const auto& [name, from] : by_name) names.append(", ").append(name);
  return names;
}

[[noreturn]] void throw_no_backend(const std::string& name, const std::string& file) {
  throw DistUnsupportedError("backend \"" + name + "\": " + file +
                             " is no backend: it has no function " DRB_ENTRY_SYMBOL);
}

drb_entry entry_of(const std::string& name, const std::vector<std::string>& files) {
  std::string why;
  for (const std::string& file : files) {
    // It may have threads of its own, so it is never unloaded.
    void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) {
      why.append(why.empty() ? "" : "; ").append(::dlerror());
      continue;
    }
    void* const symbol = ::dlsym(handle, DRB_ENTRY_SYMBOL);
    if (symbol == nullptr) throw_no_backend(name, file);
    return reinterpret_cast<drb_entry>(symbol);
  }
  const bool is_nccl = name == kNccl;
  throw DistUnsupportedError("backend \"" + name + "\" cannot be loaded: " + why +
                             (is_nccl ? "; DISTRUN_NCCL_LIBRARY can name the file" : ""));
}

std::unique_ptr<BackendLibrary> load(const std::string& name, const Registered& registered) {
  drb_entry entry = nullptr;
  if (const auto* given = std::get_if<drb_entry>(&registered.from))
    entry = *given;
  else
    entry = entry_of(name, std::get<std::vector<std::string>>(registered.from));
  const drb_backend* const functions = entry(DRB_ABI);
  if (functions == nullptr)
    throw DistUnsupportedError("backend \"" + name + "\" does not know this library's ABI " +
                               std::to_string(DRB_ABI));
  return std::make_unique<BackendLibrary>(name, functions);
}

// Of the first drb_backend that there was: newer ones are longer.
constexpr std::size_t kFirstSize =
    offsetof(drb_backend, deallocate) + sizeof(drb_backend::deallocate);

// Everything that a group calls; the rest may be missing where a capability says so.
bool is_whole(const drb_backend& functions) {
  return functions.probe && functions.last_error && functions.last_error_rank && functions.create &&
         functions.destroy && functions.abort && functions.check && functions.submit &&
         functions.work_test && functions.work_wait && functions.work_release && functions.name &&
         functions.devices;
}

std::vector<DeviceType> devices_of(const std::string& name, std::string_view list) {
  std::vector<DeviceType> devices;
  while (!list.empty()) {
    const std::string_view device = list.substr(0, list.find(','));
    list.remove_prefix(std::min(device.size() + 1, list.size()));
    const auto choice = parse_backends(std::string(device) + ":" + name);
    devices.push_back(*choice.front().device);
  }
  if (devices.empty()) throw DistUnsupportedError("backend \"" + name + "\" names no device");
  return devices;
}

}  // namespace

BackendLibrary::BackendLibrary(std::string name, const drb_backend* functions)
    : name_(std::move(name)), functions_(functions) {
  const std::string me = "backend \"" + name_ + "\"";
  if (functions->abi == DRB_ABI && functions->size >= kFirstSize && !is_whole(*functions))
    throw DistUnsupportedError(me +
                               " lacks a function that every backend has (backend_abi.h: all but "
                               "progress, work_abort, work_sequence and those of a capability)");
  if (functions->abi != DRB_ABI || functions->size < kFirstSize)
    throw DistUnsupportedError(
        me + " was built for another ABI (it says " + std::to_string(functions->abi) + ", " +
        std::to_string(functions->size) + " bytes; this library has " + std::to_string(DRB_ABI) +
        ", at least " + std::to_string(kFirstSize) + " bytes)");
  if (can(DRB_CAN_SPLIT) && functions->split == nullptr)
    throw DistUnsupportedError(me + " says that it can split groups, and has no function for it");
  devices_ = devices_of(name_, functions->devices);
  std::array<char, 1024> text{};
  const drb_status status = functions->probe(text.data(), text.size());
  description_ = std::string(text.data());
  if (status != DRB_OK)
    throw DistUnsupportedError(me + " cannot run on this machine: " + description_);
}

const BackendLibrary& BackendLibrary::named(const std::string& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (name == kNccl && !all.by_name.contains(name)) {
    all.by_name[name].from = nccl_files();
    all.by_name[name].by_default = true;
  }
  const auto found = all.by_name.find(name);
  if (found == all.by_name.end())
    throw DistUnsupportedError("unknown backend \"" + name +
                               "\"; there are: " + list_of_names(all.by_name));
  if (!found->second.library) {
    try {
      found->second.library = load(name, found->second);
    } catch (const DistError&) {
      // The next one who asks may have set the environment right.
      if (found->second.by_default) all.by_name.erase(found);
      throw;
    }
  }
  return *found->second.library;
}

void BackendLibrary::check(drb_status status) const {
  if (status == DRB_OK) return;
  const char* const words = functions_->last_error();
  const std::string text = words != nullptr && *words != '\0'
                               ? words
                               : name_ + " failed with status " + std::to_string(status);
  const std::int32_t rank = functions_->last_error_rank();
  const auto peer = rank < 0 ? std::nullopt : std::optional<int>(rank);
  switch (status) {
    case DRB_ARGUMENT:
      throw DistArgumentError(text);
    case DRB_UNSUPPORTED:
      throw DistUnsupportedError(text);
    case DRB_STORE:
      throw DistStoreError(text);
    case DRB_TIMEOUT:
      throw DistTimeoutError(text, peer);
    case DRB_NETWORK:
      throw DistNetworkError(text);
    default:  // also those of a newer backend
      throw DistBackendError(text, peer);
  }
}

// ---- the public functions ----------------------------------------------------------------------

namespace {

void add(const std::string& name, std::variant<drb_entry, std::vector<std::string>> from) {
  if (!is_backend_name(name))
    throw DistArgumentError("register_backend: \"" + name +
                            "\" is no name: letters, digits, '_' and '-'");
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (name == kGloo || all.by_name.contains(name))
    throw DistArgumentError("register_backend: there is a backend \"" + name + "\" already");
  all.by_name[name].from = std::move(from);
}

}  // namespace

void register_backend(const std::string& name, drb_entry entry) {
  if (entry == nullptr)
    throw DistArgumentError("register_backend: \"" + name + "\" with a null entry function");
  add(name, entry);
}

void register_backend(const std::string& name, const std::string& library) {
  if (library.empty())
    throw DistArgumentError("register_backend: \"" + name + "\" with no library");
  add(name, std::vector<std::string>{library});
}

std::vector<std::string> known_backends() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names{std::string(kGloo), kNccl};
  for (const auto& [name, from] : all.by_name)
    if (name != kNccl) names.push_back(name);
  return names;
}

std::string availability(std::string_view backend) {
  if (backend == kGloo) {
#ifdef DISTRUN_HAS_GLOO
    return "gloo: part of this library; shared memory inside a host, TCP between hosts";
#else
    return "gloo: this build of the library has it not; build it with -DDISTRUN_GLOO=ON (Debian: "
           "libgloo-dev)";
#endif
  }
  try {
    const BackendLibrary& library = BackendLibrary::named(std::string(backend));
    return library.name() + ": " + library.description();
  } catch (const DistError& error) {
    return error.what();
  }
}

bool is_available(std::string_view backend) {
  if (backend == kGloo) {
#ifdef DISTRUN_HAS_GLOO
    return true;
#else
    return false;
#endif
  }
  try {
    BackendLibrary::named(std::string(backend));
    return true;
  } catch (const DistError&) {
    return false;
  }
}

}  // namespace distrun

#include "launcher/program.h"

#include "launcher/text.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace distrun::launcher {
namespace {

enum class File { missing, other, executable };

File look_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return File::missing;
  // Effective rights, as execve() has it.
  const bool runs =
      S_ISREG(status.st_mode) && ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0;
  return runs ? File::executable : File::other;
}

struct Found {
  std::string path;   // empty: nothing executable
  bool seen = false;  // a file of this name is there, but it cannot be executed
};

Found in_path(std::string_view name, const Environment& environment,
              const std::string& working_folder) {
  Found found;
  if (name.empty()) return found;
  for (std::string_view folder :
       split(lookup(environment, "PATH").value_or("/usr/bin:/bin"), ':')) {
    std::string path = folder.empty() ? working_folder : std::string(folder);  // as execvp has it
    path += '/';
    path += name;
    switch (look_at(path)) {
      case File::executable:
        return Found{std::move(path), true};
      case File::other:
        found.seen = true;
        break;
      case File::missing:
        break;
    }
  }
  return found;
}

Error not_found(std::string_view what, std::string_view where) {
  return Error{Errc::not_found, "not found: " + std::string(what) + std::string(where)};
}

Error not_executable(std::string_view what) {
  return Error{Errc::io,
               "not executable: " + std::string(what) + " (chmod +x, or is it a folder?)"};
}

class Finder {
 public:
  Finder(const Options& options, const Environment& environment, const std::string& folder)
      : options_(options), environment_(environment), folder_(folder) {}

  Result<Program> run() {
    const std::string& target = options_.target;
    if (target.empty()) return not_found("'' (the name of the script is empty)", "");
    if (options_.module) return as_python(target);
    // As torchrun: --run-path beats --no-python.
    if (options_.no_python && !options_.run_path) return as_program();
    if (target == "-") return as_python(target);  // the script comes from stdin

    const File file = look_at(target);
    const bool script = target.ends_with(".py");
    if (file == File::missing) {
      if (!script && target.find('/') == std::string::npos) {
        Found found = in_path(target, environment_, folder_);
        if (!found.path.empty()) return directly(target, std::move(found.path));
      }
      return not_found(target, " in " + here());
    }
    if (file == File::executable && !script && !options_.run_path) {
      // A name without a slash would be looked up in PATH.
      const std::string path = target.find('/') == std::string::npos ? "./" + target : target;
      return directly(path, path);
    }
    return as_python(target);
  }

 private:
  Result<Program> as_program() {
    const std::string& target = options_.target;
    if (target.find('/') == std::string::npos) {
      Found found = in_path(target, environment_, folder_);
      if (!found.path.empty()) return directly(target, std::move(found.path));
      if (found.seen) return not_executable(target);
      const bool here = look_at(target) != File::missing;
      return not_found(target, here ? " in PATH; write ./" + target + " for the file in " + folder_
                                    : std::string(" in PATH"));
    }
    switch (look_at(target)) {
      case File::executable:
        return directly(target, target);
      case File::other:
        return not_executable(target);
      case File::missing:
        break;
    }
    return not_found(target, target.front() == '/' ? "" : " in " + here());
  }

  std::string here() const {
    return folder_.empty() ? "the working folder, which does not exist any more" : folder_;
  }

  Result<Program> directly(std::string argv0, std::string executable) {
    agent::Command command;
    command.executable = std::move(executable);
    command.argv.push_back(std::move(argv0));
    command.first_script_argument = 1;
    command.display_name = options_.target;
    return finish(std::move(command));
  }

  Result<Program> as_python(const std::string& target) {
    auto python = interpreter();
    if (!python) return python.error();
    agent::Command command;
    command.executable = *python;
    command.argv.push_back(std::move(*python));
    command.argv.emplace_back("-u");
    if (options_.module) command.argv.emplace_back("-m");
    command.first_script_argument = command.argv.size();
    command.argv.push_back(target);
    command.display_name = target;
    return finish(std::move(command));
  }

  Result<Program> finish(agent::Command command) {
    command.argv.insert(command.argv.end(), options_.target_arguments.begin(),
                        options_.target_arguments.end());
    return Program{std::move(command), std::move(warnings_)};
  }

  Result<std::string> interpreter() {
    if (const auto given = lookup(environment_, "PYTHON_EXEC"); given && !given->empty()) {
      std::string path(*given);
      if (path.find('/') == std::string::npos) path = in_path(path, environment_, folder_).path;
      if (!path.empty() && look_at(path) == File::executable) return path;
      return not_found("the interpreter ", std::string(*given) + " (PYTHON_EXEC)");
    }
    for (const std::string_view variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
      const auto prefix = lookup(environment_, variable);
      if (!prefix || prefix->empty()) continue;
      std::string path = std::string(*prefix) + "/bin/python";
      if (look_at(path) == File::executable) return path;
      warnings_.push_back(std::string(variable) + " names " + std::string(*prefix) +
                          ", but there is no bin/python in it; looking further");
    }
    for (const std::string_view name : {"python3", "python"}) {
      Found found = in_path(name, environment_, folder_);
      if (!found.path.empty()) return std::move(found.path);
    }
    return not_found("a Python interpreter",
                     " (python3 or python in PATH; PYTHON_EXEC may name one)");
  }

  const Options& options_;
  const Environment& environment_;
  const std::string& folder_;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<Program> find_program(const Options& options, const Environment& environment,
                             const std::string& working_folder) {
  return Finder(options, environment, working_folder).run();
}

}  // namespace distrun::launcher

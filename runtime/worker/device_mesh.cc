#include <distrun/device_mesh.h>
#include <distrun/error.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace distrun {
namespace {

std::string list_of(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::size_t product(std::span<const std::size_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

void check(std::span<const std::size_t> shape, std::span<const std::string> names,
           std::span<const int> ranks) {
  if (shape.empty() || names.size() != shape.size())
    throw DistArgumentError("DeviceMesh: " + std::to_string(shape.size()) + " dimensions and " +
                            std::to_string(names.size()) + " names; each has one");
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
    throw DistArgumentError("DeviceMesh: a name twice among " + list_of(names));
  if (product(shape) != ranks.size() || ranks.empty())
    throw DistArgumentError("DeviceMesh: " + std::to_string(ranks.size()) +
                            " ranks for a shape of " + std::to_string(product(shape)));
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size())
    throw DistArgumentError("DeviceMesh: a rank twice");
}

// How far neighbours along each dimension are apart, in row-major order.
std::vector<std::size_t> strides_of(std::span<const std::size_t> shape) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// The ranks that differ along `some` dimensions only: one row for each setting of the others.
std::vector<std::vector<int>> rows_along(std::span<const std::size_t> shape,
                                         std::span<const int> ranks,
                                         const std::vector<std::size_t>& some) {
  const auto strides = strides_of(shape);
  const std::set<std::size_t> along(some.begin(), some.end());
  std::vector<std::vector<int>> rows;
  std::vector<std::size_t> row_of_first(ranks.size(), ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::size_t first = i;  // of its row: zero along those dimensions
    for (const std::size_t d : along) first -= i / strides[d] % shape[d] * strides[d];
    if (row_of_first[first] == ranks.size()) {
      row_of_first[first] = rows.size();
      rows.emplace_back();
    }
    rows[row_of_first[first]].push_back(ranks[i]);
  }
  return rows;
}

// A group's ranks ascend; an index in the mesh and a rank of its group are to be the same.
void check_ascending(const std::vector<std::vector<int>>& rows, const std::string& name) {
  for (const auto& row : rows)
    if (!std::is_sorted(row.begin(), row.end()))
      throw DistArgumentError("DeviceMesh: ranks must ascend along each dimension; along " + name +
                              " they do not");
}

}  // namespace

DeviceMesh::DeviceMesh(std::shared_ptr<ProcessGroup> world, std::vector<std::size_t> shape,
                       std::vector<std::string> names, std::vector<int> ranks)
    : world_(std::move(world)),
      shape_(std::move(shape)),
      names_(std::move(names)),
      ranks_(std::move(ranks)) {
  check(shape_, names_, ranks_);
  for (const int rank : ranks_)
    if (rank < 0 || rank >= world_->size())
      throw DistArgumentError("DeviceMesh: rank " + std::to_string(rank) +
                              " is not in the world of " + std::to_string(world_->size()));
  place(world_->rank());
  std::vector<int> all(static_cast<std::size_t>(world_->size()));
  std::iota(all.begin(), all.end(), 0);
  if (shape_.size() == 1 && ranks_ == all) {
    groups_.push_back(world_);
    return;
  }
  for (std::size_t d = 0; d < shape_.size(); ++d) {
    const auto rows = rows_along(shape_, ranks_, {d});
    check_ascending(rows, names_[d]);
    groups_.push_back(
        world_->new_subgroups_by_enumeration(rows, {.description = "mesh_" + names_[d]}));
  }
}

DeviceMesh DeviceMesh::from_groups(std::vector<std::shared_ptr<ProcessGroup>> groups,
                                   std::vector<std::size_t> shape, std::vector<std::string> names,
                                   std::vector<int> ranks, int rank) {
  check(shape, names, ranks);
  if (groups.size() != shape.size())
    throw DistArgumentError("DeviceMesh: " + std::to_string(groups.size()) + " groups for " +
                            std::to_string(shape.size()) + " dimensions");
  DeviceMesh mesh;
  mesh.shape_ = std::move(shape);
  mesh.names_ = std::move(names);
  mesh.ranks_ = std::move(ranks);
  mesh.groups_ = std::move(groups);
  mesh.place(rank);
  for (std::size_t d = 0; d < mesh.groups_.size(); ++d)
    if (!mesh.coordinate_.empty() &&
        (!mesh.groups_[d] || static_cast<std::size_t>(mesh.groups_[d]->size()) != mesh.shape_[d]))
      throw DistArgumentError("DeviceMesh: the group of dimension " + mesh.names_[d] +
                              " has not its " + std::to_string(mesh.shape_[d]) + " ranks");
  return mesh;
}

void DeviceMesh::place(int rank) {
  const auto found = std::find(ranks_.begin(), ranks_.end(), rank);
  if (found == ranks_.end()) return;
  const auto index = static_cast<std::size_t>(found - ranks_.begin());
  const auto strides = strides_of(shape_);
  for (std::size_t d = 0; d < shape_.size(); ++d)
    coordinate_.push_back(index / strides[d] % shape_[d]);
}

void DeviceMesh::check_inside(const char* what) const {
  if (coordinate_.empty())
    throw DistArgumentError(std::string("DeviceMesh: ") + what +
                            " on a rank that is not in the mesh");
}

std::size_t DeviceMesh::dimension(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end())
    throw DistArgumentError("DeviceMesh: there is no dimension \"" + std::string(name) +
                            "\"; there are " + list_of(names_));
  return static_cast<std::size_t>(found - names_.begin());
}

std::vector<std::size_t> DeviceMesh::dimensions(std::span<const std::string> names) const {
  std::vector<std::size_t> found;
  for (const std::string& name : names) found.push_back(dimension(name));
  if (found.empty() || !std::is_sorted(found.begin(), found.end(), std::less_equal<>()))
    throw DistArgumentError("DeviceMesh: " + list_of(names) +
                            ": dimensions go in the mesh's order, each once: " + list_of(names_));
  return found;
}

std::size_t DeviceMesh::local_rank(std::string_view name) const {
  const std::size_t d = dimension(name);
  check_inside("local_rank");
  return coordinate_[d];
}

ProcessGroup& DeviceMesh::group(std::string_view name) const {
  const std::size_t d = dimension(name);
  check_inside("group");
  return *groups_[d];
}

ProcessGroup& DeviceMesh::group() const {
  if (names_.size() != 1)
    throw DistArgumentError("DeviceMesh: group() of a mesh of several dimensions; name one of " +
                            list_of(names_));
  return group(names_[0]);
}

DeviceMesh DeviceMesh::operator[](std::string_view name) const {
  const std::vector<std::string> one{std::string(name)};
  return slice(one);
}

DeviceMesh DeviceMesh::slice(std::span<const std::string> names) const {
  const auto kept = dimensions(names);
  check_inside("slice");
  DeviceMesh part;
  for (const std::size_t d : kept) {
    part.shape_.push_back(shape_[d]);
    part.names_.push_back(names_[d]);
    part.groups_.push_back(groups_[d]);
    part.coordinate_.push_back(coordinate_[d]);
  }
  const auto strides = strides_of(shape_);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    bool mine = true;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      const bool free = std::find(kept.begin(), kept.end(), d) != kept.end();
      mine = mine && (free || i / strides[d] % shape_[d] == coordinate_[d]);
    }
    if (mine) part.ranks_.push_back(ranks_[i]);
  }
  return part;
}

DeviceMesh DeviceMesh::flatten(std::span<const std::string> names, std::string name) const {
  const auto some = dimensions(names);
  if (!world_)
    throw DistArgumentError(
        "DeviceMesh: flatten makes groups, which all ranks of the world do "
        "together; so not out of a slice, or of a mesh made from groups");
  if (name.empty())
    for (const std::string& one : names) name += (name.empty() ? "" : "_") + one;
  if (some.size() == 1) return slice(names);
  if (std::find(names_.begin(), names_.end(), name) != names_.end())
    throw DistArgumentError("DeviceMesh: there is a dimension \"" + name + "\" already");
  const auto rows = rows_along(shape_, ranks_, some);
  check_ascending(rows, name);
  DeviceMesh flat;
  flat.world_ = world_;
  flat.names_ = {name};
  flat.shape_ = {rows.front().size()};
  flat.groups_.push_back(
      world_->new_subgroups_by_enumeration(rows, {.description = "mesh_" + name}));
  for (const auto& row : rows)
    if (std::find(row.begin(), row.end(), world_->rank()) != row.end()) flat.ranks_ = row;
  flat.place(world_->rank());
  return flat;
}

DeviceMesh init_device_mesh(std::shared_ptr<ProcessGroup> world, std::vector<std::size_t> shape,
                            std::vector<std::string> names) {
  const std::size_t count = product(shape);
  if (count > static_cast<std::size_t>(world->size()))
    throw DistArgumentError("init_device_mesh: a mesh of " + std::to_string(count) +
                            " ranks in a world of " + std::to_string(world->size()));
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return {std::move(world), std::move(shape), std::move(names), std::move(ranks)};
}

}  // namespace distrun

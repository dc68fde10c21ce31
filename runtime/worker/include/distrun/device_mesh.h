// DeviceMesh: the ranks of a group as a grid with named dimensions, and a group along each of them.
//
//   auto mesh = distrun::init_device_mesh(world, {2, 4}, {"dp", "tp"});    // rank = 4 * dp + tp
//   mesh.group("dp").all_reduce(gradients);         // with the rank that has the same "tp"
//   mesh.local_rank("tp");                          // 0..3
//   auto column = mesh["dp"];                       // the 1-D mesh of this rank's column
//   auto all = mesh.flatten({"dp", "tp"});          // one dimension "dp_tp", with its own group
//
// Making a mesh and flattening are collective over the world; slicing is not, and makes no groups.
#pragma once

#include <distrun/process_group.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distrun {

class DeviceMesh {
 public:
  // `ranks`: of `world`, in row-major order; others of the world call it, too, and are in no group.
  // Throws DistArgumentError: names that are not unique, or not one for each dimension; ranks that
  // do not fill the shape, are none of the world's, are there twice, or do not ascend along each
  // dimension.
  DeviceMesh(std::shared_ptr<ProcessGroup> world, std::vector<std::size_t> shape,
             std::vector<std::string> names, std::vector<int> ranks);
  // Along each dimension a group that there is already.
  static DeviceMesh from_groups(std::vector<std::shared_ptr<ProcessGroup>> groups,
                                std::vector<std::size_t> shape, std::vector<std::string> names,
                                std::vector<int> ranks, int rank);

  const std::vector<std::size_t>& shape() const { return shape_; }
  const std::vector<std::string>& names() const { return names_; }
  std::size_t size() const { return ranks_.size(); }
  std::size_t size(std::string_view name) const { return shape_[dimension(name)]; }
  // In row-major order: ranks of the world.
  const std::vector<int>& ranks() const { return ranks_; }

  // Where this rank is, an index for each dimension; empty: it is not in the mesh.
  const std::vector<std::size_t>& coordinate() const { return coordinate_; }
  std::size_t local_rank(std::string_view name) const;
  // The ranks that differ from this one along that dimension only.
  ProcessGroup& group(std::string_view name) const;
  ProcessGroup& group() const;  // of a mesh of one dimension

  // The part of this mesh that this rank is in, along these dimensions, in the mesh's order.
  DeviceMesh operator[](std::string_view name) const;
  DeviceMesh slice(std::span<const std::string> names) const;
  DeviceMesh slice(std::initializer_list<std::string> names) const {
    return slice(std::span(names.begin(), names.size()));
  }
  // A mesh of one dimension over several neighbouring ones.  Its name: theirs, with "_" between.
  DeviceMesh flatten(std::span<const std::string> names, std::string name = {}) const;
  DeviceMesh flatten(std::initializer_list<std::string> names, std::string name = {}) const {
    return flatten(std::span(names.begin(), names.size()), std::move(name));
  }

 private:
  DeviceMesh() = default;
  std::size_t dimension(std::string_view name) const;
  std::vector<std::size_t> dimensions(std::span<const std::string> names) const;
  void place(int rank);
  void check_inside(const char* what) const;

  std::shared_ptr<ProcessGroup> world_;  // null: made from groups, or a slice
  std::vector<std::size_t> shape_;
  std::vector<std::string> names_;
  std::vector<int> ranks_;
  std::vector<std::size_t> coordinate_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;  // one for each dimension
};

// Over ranks 0, 1, 2, … of `world`, as many as the shape has.
DeviceMesh init_device_mesh(std::shared_ptr<ProcessGroup> world, std::vector<std::size_t> shape,
                            std::vector<std::string> names);

}  // namespace distrun

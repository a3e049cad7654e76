package container

import (
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/state"
)

// TestHelpersOfKilledProcesses checks that a sweep removes only helpers of killed processes.
func TestHelpersOfKilledProcesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	left := func() (ids []string) {
		list, err := f.engine.ContainerList(t.Context(), container.ListOptions{All: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		slices.Sort(ids)
		return ids
	}
	before := left()
	for _, owner := range []string{"shim-1", ""} {
		err := inImage(t.Context(), f.engine, owner, f.image, func(id string) error {
			for _, other := range []string{"shim-2", ""} {
				if err := f.RemoveOwned(t.Context(), other); err != nil {
					t.Error(err)
				}
			}
			if !slices.Contains(left(), id) {
				t.Errorf("the helper of %q is gone", owner)
			}
			if err := f.RemoveOwned(t.Context(), "shim-1"); err != nil {
				t.Error(err)
			}
			if slices.Contains(left(), id) == (owner == "shim-1") {
				t.Errorf("of %q: %v", owner, left())
			}
			return nil
		})
		if owner == "" && err != nil {
			t.Error(err)
		}
	}
	if got := left(); !slices.Equal(got, before) {
		t.Errorf("got %v, want %v", got, before)
	}
}

// TestImagesThatClaimToBeHelpers checks that labels from an image do not make a container a helper.
func TestImagesThatClaimToBeHelpers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	made, err := f.engine.ContainerCreate(t.Context(), &container.Config{Image: testImage, Labels: map[string]string{state.LabelOwner: "shim-1"}},
		&container.HostConfig{}, nil, nil, "db")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // created and running
		if err := f.RemoveOwned(t.Context(), "shim-1"); err != nil {
			t.Error(err)
		}
		f.inspect(t, made.ID)
		if err := f.engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

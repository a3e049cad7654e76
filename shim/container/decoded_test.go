package container

import (
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/state"
)

// What labels say is remembered from one whole list to the next, and no longer.
func TestDecodedLabels(t *testing.T) {
	t.Parallel()
	summary := func(id, name, pod string) container.Summary {
		return container.Summary{ID: id, Names: []string{name}, Labels: map[string]string{state.LabelType: state.TypeContainer, state.LabelSandboxID: pod}}
	}
	var d decodedLabels
	list := func(whole bool, of ...container.Summary) (found []string) {
		for i, c := range d.decode(of, whole) {
			if !c.ok {
				t.Errorf("%s is no container", of[i].ID)
			}
			found = append(found, c.SandboxID+" "+c.Metadata.GetName())
		}
		return found
	}
	a, b := summary("a", "/k8s_x_p_n_u_0", "pod a"), summary("b", "/k8s_y_p_n_u_0", "pod b")
	list(false, a)
	if len(d.byID) != 0 {
		t.Errorf("a filtered list is remembered: %v", d.byID)
	}
	list(true, a, b)
	// Labels never change; only so can be seen that they are not read again.
	a.Labels[state.LabelSandboxID] = "changed"
	if got := list(true, a); got[0] != "pod a x" || len(d.byID) != 1 {
		t.Errorf("got %v, and %d remembered", got, len(d.byID))
	}
	a.Names[0] = "/k8s_z_p_n_u_0"
	if got := list(false, a, b); got[0] != "changed z" || got[1] != "pod b y" {
		t.Errorf("after renaming: got %v", got)
	}
	if _, ok := d.byID["b"]; ok {
		t.Error("a container that is gone is remembered")
	}
}

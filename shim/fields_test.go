package shim

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fields lists each field of CRI requests with its outcome and the tests that check it. docs/cri.md explains the
// outcomes. A new field of cri-api is missing in both, and TestFields fails until it is added.
//
//	effect   a test checks the effect in the container, the cgroup, the network
//	         or the answer
//	wire     a test checks the request to the engine or recorded files;
//	         docs/cri.md says "Effect not tested"
//	refused  each value is rejected with a reason
//	ignored  the shim has nothing to do; docs/cri.md says why
const fields = `
VersionRequest
	version                     ignored
RunPodSandboxRequest
	config                      effect   TestSandboxLifeCycleOnEngine
	runtime_handler             effect   TestRuntimeHandler
PodSandboxConfig
	metadata                    effect   TestSandboxLifeCycleOnEngine
	hostname                    effect   TestPortsDNSAndSysctls TestHostNamespaces
	log_directory               effect   TestLogLink TestLogOfBothStreams
	dns_config                  effect   TestPortsDNSAndSysctls
	port_mappings               effect   TestPortsDNSAndSysctls
	labels annotations          effect   TestSandboxLifeCycleOnEngine
	linux                       effect   TestPauseProcess
	windows                     refused  TestSparseRequests
PodSandboxMetadata
	name uid namespace attempt  effect   TestSandboxLifeCycleOnEngine TestOnePodOfAnIdentity
DNSConfig
	servers searches options    effect   TestPortsDNSAndSysctls
PortMapping
	protocol host_ip            effect   TestPortsOfOneAddress
	container_port host_port    effect   TestPortsDNSAndSysctls
LinuxPodSandboxConfig
	cgroup_parent               effect   TestPodCgroupCountsThePod
	security_context            effect   TestPauseProcess
	sysctls                     effect   TestPortsDNSAndSysctls
	overhead resources          ignored
LinuxSandboxSecurityContext
	namespace_options           effect   TestHostNamespaces
	selinux_options apparmor    wire     TestPlan TestPlanRefusesProfilesThatCannotApply
	run_as_user run_as_group readonly_rootfs supplemental_groups seccomp seccomp_profile_path
	                            effect   TestPauseProcess
	supplemental_groups_policy  ignored  TestRunRefuses
	privileged                  ignored  TestPlan TestPrivileged
NamespaceOption
	network ipc                 effect   TestHostNamespaces TestNamespacesOfPodAndNode TestContainersShareThePodsNamespaces
	pid target_id               effect   TestPIDNamespaces
	userns_options              refused  TestNamespaces TestSparseRequests
UserNamespace
	mode                        effect   TestSparseRequests
	uids gids                   refused  TestSparseRequests
IDMapping
	host_id container_id length refused  TestMountsRefused TestSparseRequests
SELinuxOption
	user role type level        wire     TestSELinuxOptions TestPlanOnTheWire
Int64Value
	value                       effect   TestUserAndGroups
SecurityProfile
	profile_type localhost_ref  effect   TestSeccompLocalhostProfile TestCapabilitiesAndPrivileges
LinuxContainerResources
	cpu_period cpu_quota cpu_shares memory_limit_in_bytes oom_score_adj cpuset_cpus cpuset_mems memory_swap_limit_in_bytes
	                            effect   TestResources
	hugepage_limits             effect   TestUnifiedResources TestLimitsInRecordedCgroups
	unified                     effect   TestUnifiedResources TestResources TestLimitsInRecordedCgroups
HugepageLimit
	page_size limit             effect   TestUnifiedResources TestCgroupFiles
WindowsPodSandboxConfig
	security_context            refused  TestSparseRequests
WindowsSandboxSecurityContext
	run_as_username credential_spec host_process namespace_options refused TestSparseRequests
WindowsNamespaceOption
	network                     refused  TestSparseRequests
StopPodSandboxRequest
	pod_sandbox_id              effect   TestSandboxLifeCycleOnEngine TestRepetitionsOfNothing
RemovePodSandboxRequest
	pod_sandbox_id              effect   TestSandboxLifeCycleOnEngine TestRepetitionsOfNothing
PodSandboxStatusRequest
	pod_sandbox_id verbose      effect   TestSandboxLifeCycleOnEngine TestSparseRequests
ListPodSandboxRequest
	filter                      effect   TestListFilters
PodSandboxFilter
	id state label_selector     effect   TestListFilters TestSandboxLifeCycleOnEngine
PodSandboxStateValue
	state                       effect   TestListFilters
StreamPodSandboxesRequest
	filter                      effect   TestStreamedLists
PodSandboxStatsRequest
	pod_sandbox_id              effect   TestPodSandboxStats
ListPodSandboxStatsRequest
	filter                      effect   TestPodSandboxStats
PodSandboxStatsFilter
	id label_selector           effect   TestPodSandboxStats
StreamPodSandboxStatsRequest
	filter                      effect   TestStreamedLists
CreateContainerRequest
	pod_sandbox_id config       effect   TestContainerLifeCycle
	sandbox_config              effect   TestLogLink TestPodCgroupCountsThePod
ContainerConfig
	metadata labels annotations effect   TestContainerLifeCycle
	image                       effect   TestImageIdentityOfContainers
	command args working_dir envs stdin stdin_once tty
	                            effect   TestProcessConfig TestAttachCarriesInputUntilTheContainerEnds TestAttachTerminal
	mounts                      effect   TestMounts
	devices                     effect   TestDevices
	log_path                    effect   TestLogLink TestLogOfBothStreams
	linux                       effect   TestUserAndGroups
	windows                     refused  TestSparseRequests
	CDI_devices                 effect   TestCDIDevicesOnEngine TestPlanOnTheWire TestPlanRefusals
	stop_signal                 effect   TestStopSignal
ContainerMetadata
	name attempt                effect   TestContainerLifeCycle TestCreateTwice
ImageSpec
	image user_specified_image  effect   TestImageIdentityOfContainers
	annotations                 effect   TestPullInMemory
	runtime_handler             effect   TestPullInMemory
	image_ref                   ignored
KeyValue
	key value                   effect   TestProcessConfig
Mount
	container_path host_path readonly effect TestMounts
	selinux_relabel             wire     TestMountForms TestMountsRefused
	propagation                 effect   TestMountPropagation
	uidMappings gidMappings mount_options refused TestMountsRefused TestPlanRefusals
	recursive_read_only         effect   TestRecursiveReadOnlyMounts TestMountForms
	image image_sub_path        effect   TestImageMount TestImageMountOfManyLayers TestImageMountForms
Device
	container_path host_path permissions effect TestDevices
LinuxContainerConfig
	resources                   effect   TestResources
	security_context            effect   TestUserAndGroups
LinuxContainerSecurityContext
	capabilities no_new_privs   effect   TestCapabilitiesAndPrivileges
	privileged                  effect   TestPrivileged TestPrivilegedPlanHasNoProfiles
	namespace_options           effect   TestPIDNamespaces TestNamespacesOfPodAndNode
	selinux_options apparmor apparmor_profile wire TestPlanOnTheWire TestAppArmorOption TestPlanRefusals TestAppArmorLoaded
	run_as_user run_as_group run_as_username supplemental_groups supplemental_groups_policy
	                            effect   TestUserAndGroups
	readonly_rootfs masked_paths readonly_paths effect TestFilesystemOptions
	seccomp seccomp_profile_path effect  TestSeccompLocalhostProfile TestCapabilitiesAndPrivileges
Capability
	add_capabilities drop_capabilities effect TestCapabilitiesAndPrivileges
	add_ambient_capabilities    refused  TestBadCreateRequests
WindowsContainerConfig
	resources security_context  refused  TestSparseRequests
WindowsContainerResources
	cpu_shares cpu_count cpu_maximum memory_limit_in_bytes rootfs_size_in_bytes affinity_cpus refused TestSparseRequests
WindowsCpuGroupAffinity
	cpu_mask cpu_group          refused  TestSparseRequests
WindowsContainerSecurityContext
	run_as_username credential_spec host_process refused TestSparseRequests
CDIDevice
	name                        effect   TestCDIDevicesOnEngine TestPlanOnTheWire
StartContainerRequest
	container_id                effect   TestContainerLifeCycle
StopContainerRequest
	container_id timeout        effect   TestStopSignal TestStopWithoutGrace
RemoveContainerRequest
	container_id                effect   TestContainerLifeCycle
ListContainersRequest
	filter                      effect   TestListContainersFilters
ContainerFilter
	id state pod_sandbox_id label_selector effect TestListContainersFilters
ContainerStateValue
	state                       effect   TestListContainersFilters
StreamContainersRequest
	filter                      effect   TestStreamedLists
ContainerStatusRequest
	container_id verbose        effect   TestVerboseContainerStatus
UpdateContainerResourcesRequest
	container_id linux          effect   TestResources
	windows                     refused  TestUpdate
	annotations                 ignored
ExecSyncRequest
	container_id cmd timeout    effect   TestExecSync TestExecSyncTimeout
ExecRequest
	container_id cmd tty stdin stdout stderr effect TestExecStreams TestExecTerminal TestRequestsThatAreRefused
AttachRequest
	container_id stdin tty stdout stderr effect TestAttachCarriesInputUntilTheContainerEnds TestAttachTerminal
PortForwardRequest
	pod_sandbox_id port         effect   TestPortForward TestRequestsThatAreRefused
ListImagesRequest
	filter                      effect   TestImageHasOneID
ImageFilter
	image                       effect   TestImageHasOneID
StreamImagesRequest
	filter                      effect   TestStreamedLists
ImageStatusRequest
	image verbose               effect   TestImageHasOneID TestVerboseImageStatusHasOCIConfig
PullImageRequest
	image auth                  effect   TestPullWithCredentials
	sandbox_config              ignored
AuthConfig
	username password auth registry_token server_address identity_token effect TestPullWithCredentials TestRegistryAuth
RemoveImageRequest
	image                       effect   TestRemoveImageByAnyReference
UpdateRuntimeConfigRequest
	runtime_config              effect   TestUpdateRuntimeConfig
RuntimeConfig
	network_config              effect   TestUpdateRuntimeConfig
NetworkConfig
	pod_cidr                    effect   TestUpdateRuntimeConfig TestRangesWaitForThePodCIDR
StatusRequest
	verbose                     effect   TestStatusTellsWhyTheEngineIsNotReady
ContainerStatsRequest
	container_id                effect   TestContainerStats
ListContainerStatsRequest
	filter                      effect   TestContainerStats
ContainerStatsFilter
	id pod_sandbox_id label_selector effect TestContainerStats
StreamContainerStatsRequest
	filter                      effect   TestStreamedLists
ReopenContainerLogRequest
	container_id                effect   TestReopenContainerLog
CheckpointContainerRequest
	container_id location timeout refused TestUnsupportedSayWhy
CheckpointPodRequest
	pod_sandbox_id output_path container_ids options refused TestUnsupportedSayWhy
RestorePodRequest
	checkpoint_path config runtime_handler options container_configs refused TestUnsupportedSayWhy
UpdatePodSandboxResourcesRequest
	pod_sandbox_id              effect   TestSparseRequests
	overhead resources          ignored
`

// TestFields compares the table with cri-api, docs/cri.md and the tests.
func TestFields(t *testing.T) {
	t.Parallel()
	requested := requestFields()
	docs, err := os.ReadFile("../docs/cri.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t)
	for field, entry := range readFields(t) {
		if !slices.Contains(requested, field) {
			t.Errorf("%s is no field of any request", field)
		}
		if !slices.Contains([]string{"effect", "wire", "refused", "ignored"}, entry.becomes) || entry.becomes != "ignored" && len(entry.tests) == 0 {
			t.Errorf("%s: what becomes of it, and which test says so? got %v", field, entry)
		}
		for _, name := range entry.tests {
			if !slices.Contains(tests, name) {
				t.Errorf("%s: there is no test %s", field, name)
			}
		}
		message, name, _ := strings.Cut(field, ".")
		// The docs treat all Windows messages as one, and describe these messages under the fields that contain them.
		if strings.HasPrefix(message, "Windows") || slices.Contains([]string{"Int64Value", "KeyValue"}, message) {
			continue
		}
		rows := rowsOf(string(docs), name)
		if len(rows) == 0 {
			t.Errorf("docs/cri.md does not say what becomes of %s", field)
		}
		if entry.becomes == "wire" && !strings.Contains(strings.Join(rows, ""), "ffect not tested") {
			t.Errorf("docs/cri.md does not say that the effect of %s is not tested", field)
		}
	}
	for _, field := range requested {
		if _, ok := readFields(t)[field]; !ok {
			t.Errorf("nobody has thought of %s", field)
		}
	}
}

// rowsOf returns the table rows with a name in their first column.
func rowsOf(docs, name string) []string {
	var rows []string
	word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
	for line := range strings.Lines(docs) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && word.MatchString(cells[1]) {
			rows = append(rows, line)
		}
	}
	return rows
}

type fieldEntry struct {
	becomes string
	tests   []string
}

// readFields parses the table. A line without an outcome continues in the next.
func readFields(t *testing.T) map[string]fieldEntry {
	t.Helper()
	out := map[string]fieldEntry{}
	var message string
	var names []string
	for line := range strings.Lines(fields) {
		words := strings.Fields(line)
		if len(words) > 0 && !strings.HasPrefix(line, "\t") {
			message = words[0]
			continue
		}
		for i, w := range words {
			if slices.Contains([]string{"effect", "wire", "refused", "ignored"}, w) {
				for _, name := range names {
					if _, twice := out[message+"."+name]; twice {
						t.Errorf("%s.%s is there twice", message, name)
					}
					out[message+"."+name] = fieldEntry{w, words[i+1:]}
				}
				names = nil
				break
			}
			names = append(names, w)
		}
	}
	return out
}

// requestFields returns the fields of all requests of both services, including nested messages.
func requestFields() []string {
	var out []string
	seen := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || m.IsMapEntry() {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			out = append(out, string(m.Name())+"."+string(f.Name()))
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	services := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			walk(methods.Get(j).Input())
		}
	}
	return out
}

func testNames(t *testing.T) []string {
	t.Helper()
	var names []string
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(b, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// A deployed is what the page about running gives to a cluster.
type deployed struct {
	account    corev1.ServiceAccount
	binding    rbacv1.ClusterRoleBinding
	config     corev1.ConfigMap
	service    corev1.Service
	deployment appsv1.Deployment
}

// readDeployed parses the objects in the section about the container, strictly.
func readDeployed(t *testing.T) *deployed {
	t.Helper()
	_, section, _ := strings.Cut(readFile(t, "../../docs/running.md"), "\n## Container\n")
	_, text, _ := strings.Cut(section, "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	d := &deployed{}
	kinds := map[string]any{
		"v1 ServiceAccount": &d.account, "v1 ConfigMap": &d.config, "v1 Service": &d.service, "apps/v1 Deployment": &d.deployment,
		"rbac.authorization.k8s.io/v1 ClusterRoleBinding": &d.binding,
	}
	for _, doc := range documents(text) {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(doc.text), &head); err != nil {
			t.Fatal(err)
		}
		kind := head.APIVersion + " " + head.Kind
		object, ok := kinds[kind]
		if !ok {
			t.Fatalf("line %d: there is no place for a %q, or it is the second one", doc.line, kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc.text), object); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		delete(kinds, kind)
	}
	if len(kinds) > 0 || len(d.deployment.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("missing are %v, or it is not one container", kinds)
	}
	return d
}

// TestDeploymentStarts wants the arguments to be flags that there are, and the
// files that they name to be mounted and good.
func TestDeploymentStarts(t *testing.T) {
	d := readDeployed(t)
	pod := d.deployment.Spec.Template.Spec
	args := pod.Containers[0].Args
	serve := newServe()
	if err := serve.ParseFlags(args); err != nil || len(args) == 0 || !slices.Equal(serve.Flags().Args(), []string{serve.Name()}) {
		t.Fatalf("args %q: %v", args, err)
	}
	mounts := make(map[string]corev1.VolumeSource) // by path
	for _, m := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || !m.ReadOnly {
			t.Fatalf("the mount of %s has no volume, or can be written", m.Name)
		}
		mounts[m.MountPath] = pod.Volumes[i].VolumeSource
	}
	if s := mounts[serve.Flag("material").Value.String()].Secret; s == nil || s.SecretName != "cacerts" || *s.DefaultMode != 0o440 {
		t.Errorf("the key material is not the Secret, or open to others: %v", mounts)
	}
	dir, name := path.Split(serve.Flag("config").Value.String())
	if m := mounts[path.Clean(dir)].ConfigMap; m == nil || m.Name != d.config.Name {
		t.Errorf("the configuration is not in the ConfigMap: %v", mounts)
	}
	c, err := parseConfig([]byte(d.config.Data[name]))
	if err != nil || len(d.config.Data) != 1 {
		t.Fatalf("the configuration %s: %v", name, err)
	}
	if w := c.warnings(); len(w) > 0 {
		t.Errorf("the configuration is warned about: %q", w)
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if needs := time.Duration(c.Limits.DrainDelay + c.Limits.DrainTimeout); grace <= needs {
		t.Errorf("it has %v to terminate, and needs more than %v", grace, needs)
	}
	if own := d.service.Name + "." + d.service.Namespace + ".svc"; !slices.Contains(c.ServingNames, own) {
		t.Errorf("clients call %s, and the certificate is for %q", own, c.ServingNames)
	}
	if own := d.account.Namespace + "/" + d.account.Name; !slices.Contains(c.Protected, own) {
		t.Errorf("its account is %s, and protected are %q", own, c.Protected)
	}
}

// TestDeploymentIsReached wants the ports to be the defaults of the flags, and
// the probes to ask for what is served.
func TestDeploymentIsReached(t *testing.T) {
	d := readDeployed(t)
	serve := newServe()
	defaults := make(map[string]int32) // by name
	for name, flag := range map[string]string{"grpc": "listen", "http": "http"} {
		_, port, err := net.SplitHostPort(serve.Flag(flag).DefValue)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		defaults[name] = int32(n)
	}
	container := d.deployment.Spec.Template.Spec.Containers[0]
	ports, offered := make(map[string]int32), make(map[string]int32)
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range d.service.Spec.Ports {
		offered[p.Name] = p.Port
	}
	if diff := cmp.Diff(defaults, ports) + cmp.Diff(defaults, offered); diff != "" {
		t.Errorf("ports (-flags +page):\n%s", diff)
	}
	admin := newAdmin(func() error { return nil }, prometheus.NewRegistry())
	for want, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		get := probe.HTTPGet
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequest(http.MethodGet, get.Path, nil))
		if get.Path != want || w.Code != http.StatusOK || get.Port.IntVal != defaults["http"] {
			t.Errorf("the probe of %s asks for %s on port %v, which answers %d", want, get.Path, get.Port, w.Code)
		}
	}
	labels := d.deployment.Spec.Template.Labels
	for _, selector := range []map[string]string{d.service.Spec.Selector, d.deployment.Spec.Selector.MatchLabels} {
		for k, v := range selector {
			if labels[k] != v {
				t.Errorf("%s=%s selects nothing of %v", k, v, labels)
			}
		}
	}
	if labels["istio.io/dataplane-mode"] != "none" {
		t.Errorf("the mesh takes the pods in: %v", labels)
	}
}

// TestDeploymentMayLittle wants the account to be bound to the role on the page,
// and the container to have no more than it needs.
func TestDeploymentMayLittle(t *testing.T) {
	d := readDeployed(t)
	pod := d.deployment.Spec.Template.Spec
	_, text, _ := strings.Cut(readFile(t, "../../docs/running.md"), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict([]byte(text), &role); err != nil {
		t.Fatal(err)
	}
	if want := (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name}); d.binding.RoleRef != want {
		t.Errorf("bound is %v, want %v", d.binding.RoleRef, want)
	}
	want := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: d.account.Namespace, Name: d.account.Name}}
	if diff := cmp.Diff(want, d.binding.Subjects); diff != "" {
		t.Errorf("bound to (-want +page):\n%s", diff)
	}
	for _, namespace := range []string{d.config.Namespace, d.service.Namespace, d.deployment.Namespace} {
		if namespace != d.account.Namespace {
			t.Errorf("one is in namespace %q, another in %q", namespace, d.account.Namespace)
		}
	}
	if pod.ServiceAccountName != d.account.Name || !*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("it runs as %s, and may be root", pod.ServiceAccountName)
	}
	yes, no := true, false
	little := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if diff := cmp.Diff(little, pod.Containers[0].SecurityContext); diff != "" {
		t.Errorf("the container (-want +page):\n%s", diff)
	}
}

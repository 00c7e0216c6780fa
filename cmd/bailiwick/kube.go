package main

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A kube is a connection to an API server.
type kube struct {
	typed    kubernetes.Interface
	metadata metadata.Interface

	bearer  string // what we authenticate with, if it is a token
	mounted string // the file with the token of our pod, if we are in one
	kubectl string // how to ask the same API server
}

// connect returns a connection. It makes no call.
func connect(rc *rest.Config, c *Config) (*kube, error) {
	rc = rest.CopyConfig(rc)
	rc.QPS, rc.Burst = c.KubernetesQPS, c.KubernetesBurst
	rc.UserAgent = "bailiwick/" + version()
	protobuf := rest.CopyConfig(rc)
	protobuf.ContentType = "application/vnd.kubernetes.protobuf"
	protobuf.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	typed, err := kubernetes.NewForConfig(protobuf)
	if err != nil {
		return nil, fmt.Errorf("connecting to Kubernetes: %w", err)
	}
	meta, err := metadata.NewForConfig(metadata.ConfigFor(rc))
	if err != nil {
		return nil, fmt.Errorf("connecting to Kubernetes: %w", err)
	}
	return &kube{typed: typed, metadata: meta, bearer: rc.BearerToken, mounted: mountedToken, kubectl: "kubectl"}, nil
}

// serverConfig returns how a server finds Kubernetes: by the file that it was
// given, or else with the credentials of its pod. It looks into nobody's home.
func serverConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return fileConfig(kubeconfig)
	}
	rc, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding Kubernetes: %w\noutside a cluster, name a kubeconfig file with --kubeconfig", err)
	}
	return rc, nil
}

// userConfig returns how a person's commands find Kubernetes: by the file that
// they name, or else as kubectl does, by the list in KUBECONFIG or the file in
// their home.
func userConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return fileConfig(kubeconfig)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding Kubernetes: %w\nname a kubeconfig file with --kubeconfig or in KUBECONFIG, or a file with exported objects with --objects", err)
	}
	return rc, nil
}

func fileConfig(kubeconfig string) (*rest.Config, error) {
	rc, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w\n--kubeconfig must name a file such as ~/.kube/config; which ones kubectl reads says: kubectl config view -v 6", kubeconfig, err)
	}
	return rc, nil
}

// kubectl returns how a person asks the API server of a kubeconfig file.
func kubectl(kubeconfig string) string {
	if kubeconfig == "" {
		return "kubectl"
	}
	return "kubectl --kubeconfig " + shellWord(kubeconfig)
}

// kubeHint says what to do about an API server that did not give what was asked
// for.
func kubeHint(err error, kubectl string) string {
	switch {
	case apierrors.IsForbidden(err):
		return "get the permission, or use objects that somebody else exported: --objects FILE, made with: " + howToExport
	case apierrors.IsNotFound(err):
		return "see what there is with: " + kubectl + " get pods -A -o wide"
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept these credentials; see whose they are with: " + kubectl + " auth whoami"
	default:
		return "see which cluster is asked, and whether it answers, with: " + kubectl + " cluster-info"
	}
}

package inventory

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// The resources that are watched.
const (
	pods            = "pods"
	nodes           = "nodes"
	serviceAccounts = "serviceaccounts"
)

// Permissions returns what an [Inventory] must be permitted, in all namespaces.
func Permissions() []rbacv1.PolicyRule {
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{corev1.GroupName}, Resources: []string{resource}, Verbs: verbs}
	}
	return []rbacv1.PolicyRule{
		rule(pods, "list", "watch"),
		rule(nodes, "get", "list", "watch"),
		rule(serviceAccounts, "get", "list", "watch"),
	}
}
